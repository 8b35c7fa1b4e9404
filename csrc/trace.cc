// See trace.h.
#include "trace.h"

#include <algorithm>
#include <utility>

namespace peerax {

void TracedRun::Add(std::size_t rank, const TracedSpan& span) {
  TracedRank& traced = ranks[rank];
  traced.waiting_ns += span.matched_ns - span.start_ns;
  traced.moving_ns += span.end_ns - span.matched_ns;
  if (traced.spans.size() < most_spans) {
    traced.spans.push_back(span);
  } else {
    traced.spans[static_cast<std::size_t>(traced.operations) % most_spans] = span;
  }
  ++traced.operations;
}

void Trace::Start(std::size_t most_spans) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++recording_;
  most_spans_ = most_spans;
  spans_ = 0;
  forgotten_runs_ = 0;
  runs_.clear();
  operations_.clear();
  on_.store(true, std::memory_order_relaxed);
}

void Trace::Stop() { on_.store(false, std::memory_order_relaxed); }

std::unique_ptr<TracedRun> Trace::NewRun(std::size_t size) {
  if (!on()) return nullptr;
  std::lock_guard<std::mutex> lock(mutex_);
  return std::make_unique<TracedRun>(size, std::max<std::size_t>(1, most_spans_ / size), recording_);
}

void Trace::Describe(const Operation& operation) {
  std::lock_guard<std::mutex> lock(mutex_);
  operations_.try_emplace(operation.id, operation);
}

void Trace::Take(std::unique_ptr<TracedRun> run) {
  std::lock_guard<std::mutex> lock(mutex_);
  // It was stopped meanwhile, and what it has was taken; or another one was begun, which has not seen its operations.
  if (!on() || run->recording != recording_) return;
  for (const TracedRank& rank : run->ranks) spans_ += rank.spans.size();
  runs_.push_back(std::move(run));
  while (spans_ > most_spans_ && runs_.size() > 1) {
    for (const TracedRank& rank : runs_.front()->ranks) spans_ -= rank.spans.size();
    runs_.pop_front();
    ++forgotten_runs_;
  }
}

std::int64_t Trace::forgotten_runs() {
  std::lock_guard<std::mutex> lock(mutex_);
  return forgotten_runs_;
}

std::deque<std::unique_ptr<TracedRun>> Trace::TakeRuns() {
  std::lock_guard<std::mutex> lock(mutex_);
  spans_ = 0;
  return std::exchange(runs_, {});
}

std::map<std::int64_t, Operation> Trace::TakeOperations() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(operations_, {});
}

Trace& TheTrace() {
  static Trace* const trace = new Trace;
  return *trace;
}

}  // namespace peerax
