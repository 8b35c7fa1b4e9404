// One run of a program on all ranks, driven through sessions as the XLA handlers drive them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "program.h"
#include "session.h"

namespace peerax::stress {

// Prints the message and ends the process. Nothing is left to check once something was wrong.
[[noreturn]] void Die(const std::string& message);

struct Tally {
  std::int64_t runs = 0;
  std::int64_t failed_runs = 0;
  std::int64_t steps = 0;
  std::int64_t messages = 0;
  std::int64_t size_bytes = 0;
  std::int64_t failed_messages = 0;  // of those: in runs that failed
  std::int64_t failed_size_bytes = 0;
  std::map<std::string, std::int64_t> codes;
  void Add(const Tally& other);
};

// Each rank starts on a thread of its own and goes on on whatever thread its session resumes it. It touches the
// session only through its Rank, as a handler does: a session that dies too early is seen.
class Execution {
 public:
  // The body is entered repeats times in one run, as by a shard_map in a loop, unless it fails.
  Execution(const Program& program, std::int64_t run, int repeats, bool limits_are_short);
  Tally Run();

 private:
  struct RankRun {
    std::int32_t index = 0;
    Rank* rank = nullptr;
    std::size_t next = 0;
    int repeats_left = 0;
    std::vector<std::unique_ptr<char[]>> sent;      // of the current step, by leaf
    std::vector<std::unique_ptr<char[]>> received;
    Tally tally;
    bool failed = false;
    std::string code;
    std::string report;
  };

  void Enter(RankRun& r);
  void GoOn(RankRun& r);
  bool TakeStep(RankRun& r, const Step& step);  // true: go on with the next one
  bool AfterStep(RankRun& r, const Step& step);
  void JoinCollective(RankRun& r, const Step& step);
  void Leave(RankRun& r);
  void Left(RankRun& r, const Failure* failure);
  void CheckOutcome(const RankRun& r) const;
  [[noreturn]] void Wrong(const RankRun& r, const std::string& what) const;

  const Program& program_;
  const std::int64_t run_;
  const bool limits_are_short_;
  std::vector<RankRun> ranks_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int gone_ = 0;
  std::map<std::tuple<const Step*, std::int32_t, int>, int> in_collective_;
};

}  // namespace peerax::stress
