// What ranks did when, for people to look at: recorded while it is asked for, in bounded memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "operation.h"

namespace peerax {

// One operation of one rank. Plain data, read as it lies in memory.
struct TracedSpan {
  std::int64_t operation;   // its id
  std::int64_t start_ns;
  std::int64_t matched_ns;  // when the last of its other ends was there
  std::int64_t end_ns;
  std::int64_t number;      // how often the rank has come by this operation, from 1
  std::int64_t sent;        // number on its channel of the first message, from 1; 0: none
  std::int64_t received;
  std::int64_t size_bytes;  // of all its messages in one direction
  std::int64_t complete;    // 0: the run failed while the rank waited in it
};

struct TracedRank {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t inside_ns = 0;  // of that time, in runs
  std::int64_t waiting_ns = 0;
  std::int64_t moving_ns = 0;
  std::int64_t operations = 0;
  std::vector<TracedSpan> spans;  // the last ones; operations % spans.size() is the oldest if there were more

  void AddTotals(const TracedRank& other);
};

// Each rank is written by the rank itself only.
struct TracedRun {
  TracedRun(std::size_t size, std::size_t most_spans, std::int64_t recording)
      : ranks(size), most_spans(most_spans), recording(recording) {}

  std::vector<TracedRank> ranks;
  const std::size_t most_spans;  // of one rank
  const std::int64_t recording;  // which Start it belongs to

  void Add(std::size_t rank, const TracedSpan& span);
};

class Trace {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  void Start(std::size_t most_spans);
  void Stop();

  // A run that begins while the trace is on, or nullptr.
  std::unique_ptr<TracedRun> NewRun(std::size_t size);
  void Describe(const Operation& operation);  // programs may be gone when the trace is looked at
  void Take(std::unique_ptr<TracedRun> run);

  // What was recorded, in the order in which the runs ended; nothing of it is left. The first ones are one run without
  // spans, if there were too many.
  std::deque<std::unique_ptr<TracedRun>> TakeRuns();
  std::map<std::int64_t, Operation> TakeOperations();

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;  // guards what follows
  std::int64_t recording_ = 0;
  std::size_t most_spans_ = 0;
  std::size_t spans_ = 0;
  std::unique_ptr<TracedRun> forgotten_;  // the totals of runs whose spans are not kept
  std::deque<std::unique_ptr<TracedRun>> runs_;
  std::map<std::int64_t, Operation> operations_;
};

Trace& TheTrace();  // never destroyed: detached threads use it

}  // namespace peerax
