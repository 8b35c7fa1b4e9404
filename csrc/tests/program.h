// Programs for the stress test: random, from a seed, on whose steps all ranks agree; or with one known mistake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "operation.h"

namespace peerax::stress {

// A generator with the same results everywhere: the seed of a failed program can be given again on any machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next();
  int Below(int limit) { return static_cast<int>(Next() % static_cast<std::uint64_t>(limit)); }
  bool OneIn(int n) { return Below(n) == 0; }
  std::vector<std::int32_t> Shuffled(std::int32_t size);

 private:
  std::uint64_t state_;
};

// What a message contains: words that follow from this number, which is never zero.
using Content = std::uint64_t;
constexpr Content kZeros = 0;

struct Step {
  Operation operation;
  std::vector<std::size_t> sizes;              // bytes by leaf, of what is sent
  std::vector<std::size_t> received_sizes;     // the same, but for a mismatch
  std::vector<bool> runs;                      // by rank: whether it takes this step
  std::vector<std::vector<Content>> sent;      // by rank and leaf
  std::vector<std::vector<Content>> received;  // by rank and leaf
  std::vector<int> pause_us;                   // by rank: how long it computes first
};

enum class Mistake {
  kNone,
  kLoneReceive,
  kLoneSend,
  kMismatch,     // and the ranks go on after it
  kCycle,        // all receive before they send
  kSendCycle,    // all send before they receive: legal where sends are buffered
  kCrossedTags,
  kGatherMissed,
  kGatherAgainstReceive,
  kExchangeMissed,  // in place
  kBufferLimit,  // more than kSmallBufferBytes
  kLate,         // one computes for kLate_us before it sends
};
constexpr Mistake kMistakes[] = {Mistake::kLoneReceive, Mistake::kLoneSend,    Mistake::kMismatch,
                                 Mistake::kCycle,       Mistake::kSendCycle,   Mistake::kCrossedTags,
                                 Mistake::kGatherMissed, Mistake::kGatherAgainstReceive, Mistake::kExchangeMissed};
constexpr std::int64_t kSmallBufferBytes = 4 << 20;
constexpr int kLate_us = 2'500'000;  // the others give up before

struct Program {
  std::uint64_t seed = 0;
  std::int32_t size = 0;
  std::deque<Step> steps;       // a deque: the address of an operation is its identity
  std::set<std::string> codes;  // one of these is expected
  bool may_succeed = true;
  std::string site;             // must be named in the report, if not empty
};

// rendezvous: only what is legal if separate sends wait for their receive.
Program MakeProgram(std::uint64_t seed, bool rendezvous, Mistake mistake);

}  // namespace peerax::stress
