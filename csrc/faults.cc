// See faults.h.
#include "faults.h"

#ifdef PEERAX_FAULTS

#include <atomic>
#include <chrono>
#include <thread>

namespace peerax::faults {
namespace {

constexpr std::uint64_t kLongestDelay_us = 300;
constexpr std::uint64_t kNoMemoryOneIn = 300;

// Each thread draws from a sequence of its own: a lock that they shared would order them.
std::atomic<std::uint64_t> the_seed{1};
std::atomic<std::uint64_t> threads{0};

std::uint64_t Next() {
  thread_local const std::uint64_t thread = threads.fetch_add(1, std::memory_order_relaxed) << 32;
  thread_local std::uint64_t count = 0;
  std::uint64_t z = (the_seed.load(std::memory_order_relaxed) + thread + ++count) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace

void Seed(std::uint64_t seed) { the_seed.store(seed << 48, std::memory_order_relaxed); }

void Delay() {
  const std::uint64_t chance = Next();
  if (chance % 4 == 0) std::this_thread::yield();
  if (chance % 16 == 1) std::this_thread::sleep_for(std::chrono::microseconds((chance >> 8) % kLongestDelay_us));
}

bool NoMemory() { return Next() % kNoMemoryOneIn == 0; }

std::size_t Pick(std::size_t size) { return Next() % size; }

}  // namespace peerax::faults

#endif
