// Faults for the stress test: delays where threads meet, other orders, memory that runs out. Only a build with
// PEERAX_FAULTS has them; in any other these are constants, and nothing is left of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace peerax::faults {

#ifdef PEERAX_FAULTS

constexpr bool kOn = true;
void Seed(std::uint64_t seed);  // of all threads, from now on
void Delay();                   // sometimes, for a while
bool NoMemory();                // sometimes
std::size_t Pick(std::size_t size);  // any index below size

#else

constexpr bool kOn = false;
inline void Seed(std::uint64_t) {}
inline void Delay() {}
constexpr bool NoMemory() { return false; }
constexpr std::size_t Pick(std::size_t size) { return size - 1; }

#endif

}  // namespace peerax::faults
