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

void TracedRank::AddTotals(const TracedRank& other) {
  if (other.begin_ns == 0) return;
  begin_ns = begin_ns == 0 ? other.begin_ns : std::min(begin_ns, other.begin_ns);
  end_ns = std::max(end_ns, other.end_ns);
  inside_ns += other.inside_ns;
  waiting_ns += other.waiting_ns;
  moving_ns += other.moving_ns;
  operations += other.operations;
}

void Trace::Start(std::size_t most_spans) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++recording_;
  most_spans_ = most_spans;
  spans_ = 0;
  forgotten_ = nullptr;
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
  for (TracedRank& rank : run->ranks) {
    rank.inside_ns = rank.end_ns - rank.begin_ns;
    spans_ += rank.spans.size();
  }
  runs_.push_back(std::move(run));
  while (spans_ > most_spans_ && runs_.size() > 1) {
    const std::vector<TracedRank>& oldest = runs_.front()->ranks;
    if (forgotten_ == nullptr) forgotten_ = std::make_unique<TracedRun>(0, 0, recording_);
    if (forgotten_->ranks.size() < oldest.size()) forgotten_->ranks.resize(oldest.size());
    for (std::size_t i = 0; i < oldest.size(); ++i) {
      forgotten_->ranks[i].AddTotals(oldest[i]);
      spans_ -= oldest[i].spans.size();
    }
    runs_.pop_front();
  }
}

std::deque<std::unique_ptr<TracedRun>> Trace::TakeRuns() {
  std::lock_guard<std::mutex> lock(mutex_);
  spans_ = 0;
  if (forgotten_ != nullptr) runs_.push_front(std::move(forgotten_));
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
