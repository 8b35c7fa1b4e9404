// See session.h.
#include "session.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "faults.h"
#include "report.h"
#include "resume_pool.h"
#include "settings.h"

namespace peerax {
namespace {

// With many more ranks than cores a rank had better leave its core to others.
constexpr int kRanksPerCore = 2;
// How long ranks of a failed run wait at its end for one that may never come, since XLA ended it by an error.
constexpr double kEndLimit_s = 1.0;

}  // namespace

std::int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Session::Session(std::int32_t size, std::int32_t devices)
    : trace_(TheTrace().NewRun(static_cast<std::size_t>(size))),
      on_device_(devices),
      active_(size),
      may_look_out_(size <= kRanksPerCore * static_cast<std::int32_t>(std::thread::hardware_concurrency())) {
  ranks_.reserve(size);
  for (std::int32_t i = 0; i < size; ++i) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->session = this;
    ranks_.back()->index = i;
  }
}

Session::~Session() {
  if (trace_ == nullptr) return;
  for (TracedRank& rank : trace_->ranks) {  // XLA may have ended one by an error
    if (rank.begin_ns != 0 && rank.end_ns == 0) rank.end_ns = NowNs();
  }
  TheTrace().Take(std::move(trace_));
}

void Session::Open(Rank& rank, const Operation& operation) {
  rank.operation.store(&operation, std::memory_order_relaxed);
  rank.remaining.store(1, std::memory_order_relaxed);
  rank.look_out_ns = 0;
  rank.takes_part = false;
}

void Session::Enter(Rank& rank, const Operation& operation, Rank::Ends& ends, std::size_t size_bytes) {
  rank.takes_part = true;
  rank.number.store(++ends.number, std::memory_order_relaxed);
  if (trace_ == nullptr) return;
  if (ends.number == 1) TheTrace().Describe(operation);
  rank.matched_ns.store(0, std::memory_order_relaxed);
  rank.span = {operation.id, NowNs(), 0, 0, ends.number, 0, 0, static_cast<std::int64_t>(size_bytes), 1};
}

void Session::Exit(Rank& rank) {
  if (!rank.takes_part) return;
  rank.takes_part = false;
  rank.last_number.store(rank.number.load(std::memory_order_relaxed), std::memory_order_relaxed);
  rank.last.store(rank.operation.load(std::memory_order_relaxed), std::memory_order_relaxed);
  if (trace_ == nullptr) return;
  rank.span.end_ns = NowNs();
  rank.span.complete = failed_.load(std::memory_order_acquire) ? 0 : 1;
  const std::int64_t matched_ns = rank.matched_ns.load(std::memory_order_relaxed);
  rank.span.matched_ns = rank.span.complete == 0 ? rank.span.end_ns : std::max(matched_ns, rank.span.start_ns);
  trace_->Add(static_cast<std::size_t>(rank.index), rank.span);
}

void Session::StartGather(Rank& rank, const Operation& operation) {
  Open(rank, operation);
  rank.may_enter = false;
  Rank::Ends& ends = FindEnds(rank, operation);
  Gathering& gathering = *ends.gathering;
  Enter(rank, operation, ends, 0);
  faults::Delay();
  std::unique_lock<std::mutex> lock(gathering.mutex);
  if (failed_.load(std::memory_order_acquire)) return;
  if (!gathering.arrived.empty()) {
    // Members may call it at different lines, but it must be the same one.
    const Rank& other = *gathering.arrived.front();
    const Operation& theirs = *other.operation.load(std::memory_order_relaxed);
    if (&theirs != &operation && (theirs.name != operation.name || theirs.types != operation.types)) {
      lock.unlock();
      Fail("PX209", {theirs.site, operation.site}, DescribeOtherKind(other, theirs, rank, operation));
      return;
    }
  }
  if (gathering.arrived.size() + 1 < gathering.size) {
    rank.remaining.fetch_add(1, std::memory_order_relaxed);
    gathering.arrived.push_back(&rank);
    return;
  }
  std::vector<Rank*> others;
  others.swap(gathering.arrived);
  lock.unlock();
  faults::Delay();
  rank.may_enter = true;
  for (Rank* other : others) {
    other->may_enter = true;
    Matched(*other);
    Complete(*other);
  }
}

bool Session::MayEnterCollective(Rank& rank) {
  if (rank.may_enter) return true;
  EndRank(rank);
  return false;
}

void Session::StartEnd(Rank& rank) {
  faults::Delay();
  std::lock_guard<std::mutex> lock(mutex_);
  rank.operation.store(nullptr, std::memory_order_relaxed);
  rank.takes_part = false;
  if (trace_ != nullptr) trace_->ranks[rank.index].end_ns = NowNs();
  rank.waits_for_end = !finished_;
  rank.remaining.store(rank.waits_for_end ? 2 : 1, std::memory_order_relaxed);
  rank.ended.store(true, std::memory_order_release);
}

void Session::ReleaseEnds() {
  for (const auto& rank : ranks_) {
    if (!rank->waits_for_end) continue;
    rank->waits_for_end = false;
    Complete(*rank);
  }
}

bool Session::Park(Rank& rank) {
  // Another thread may resume the rank, and end the session, as soon as `remaining` is released.
  const std::shared_ptr<Session> keep = shared_from_this();
  const std::int64_t now_ns = NowNs();
  rank.parked_since_ns.store(now_ns, std::memory_order_relaxed);
  last_progress_ns_.store(now_ns, std::memory_order_relaxed);
  faults::Delay();
  if (rank.remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    rank.parked_since_ns.store(0, std::memory_order_relaxed);
    rank.resume = nullptr;
    Exit(rank);
    if (rank.ended.load(std::memory_order_relaxed)) Leave();
    return true;
  }
  faults::Delay();
  if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) OnQuiet();
  return false;
}

void Session::Complete(Rank& rank) {
  faults::Delay();
  if (rank.remaining.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  faults::Delay();
  // A rank that waited at its end leaves, and runs no more.
  if (!rank.ended.load(std::memory_order_acquire)) active_.fetch_add(1, std::memory_order_acq_rel);
  RunOnResumeThread([this, &rank] { Resume(rank); });
}

// On a resume thread.
void Session::Resume(Rank& rank) {
  const Operation* operation = rank.operation.load(std::memory_order_relaxed);
  const std::int64_t now_ns = NowNs();
  last_progress_ns_.store(now_ns, std::memory_order_relaxed);
  const double waited_s = static_cast<double>(now_ns - rank.parked_since_ns.exchange(0)) * 1e-9;
  if (operation != nullptr && waited_s > rank.longest_wait_s) {
    rank.longest_wait_s = waited_s;
    rank.longest_wait_site = operation->kind == Kind::kExchange ? operation->receive_site : operation->site;
  }
  Exit(rank);
  const std::function<void()> resume = std::move(rank.resume);
  rank.resume = nullptr;
  resume();  // the session may be gone when it returns
}

// A rank that leaves without waiting for the others.
void Session::EndRank(Rank& rank) {
  ends_with_error_.store(true, std::memory_order_release);
  if (trace_ != nullptr) trace_->ranks[rank.index].end_ns = NowNs();
  rank.operation.store(nullptr, std::memory_order_relaxed);
  rank.ended.store(true, std::memory_order_release);
  Leave();
}

void Session::Leave() {
  const std::shared_ptr<Session> keep = shared_from_this();
  faults::Delay();
  if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) OnQuiet();
}

void Session::OnQuiet() {
  faults::Delay();
  std::lock_guard<std::mutex> lock(mutex_);
  if (finished_ || active_.load(std::memory_order_acquire) != 0) return;
  bool all_ended = true;
  for (const auto& rank : ranks_) all_ended = all_ended && rank->ended.load(std::memory_order_acquire);
  if (!all_ended) {
    if (failed_.load(std::memory_order_relaxed)) return;
    FailLocked(Reporter(*this).Stuck());
    return;
  }
  if (!failed_.load(std::memory_order_relaxed)) {
    Failure leftover;
    if (Reporter(*this).Leftover(&leftover)) FailLocked(std::move(leftover));
  }
  finished_ = true;
  AddTotals();
  ReleaseEnds();
}

void Session::Fail(const std::string& code, const std::vector<std::string>& sites,
                   const std::vector<std::string>& evidence) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return;
  FailLocked(Reporter(*this).Render(code, sites, evidence));
}

void Session::FailLocked(Failure failure) {
  failure_ = std::move(failure);
  failed_since_ns_ = NowNs();
  failed_.store(true, std::memory_order_release);
  faults::Delay();
  {
    Totals& totals = TheTotals();
    std::lock_guard<std::mutex> lock(totals.mutex);
    if (totals.failure.empty() && !failure_.code.empty()) totals.failure = failure_.text;  // no code: interrupted
  }
  ReleaseAll();
}

void Session::Interrupt() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!failed_.load(std::memory_order_relaxed) && !finished_) FailLocked({"", "interrupted"});
}

std::vector<std::string> Session::Describe() {
  std::lock_guard<std::mutex> lock(mutex_);
  return Reporter(*this).Grid();
}

void Session::Abandon() {
  for (const auto& rank : ranks_) rank->keep = nullptr;
}

void Session::ReleaseAll() {
  for (auto& [key, channel] : channels_) {
    std::lock_guard<std::mutex> lock(channel->mutex);
    for (const Receive& receive : channel->receives) {
      Zero({receive.data, receive.size_bytes});
      Complete(*receive.rank);
    }
    channel->receives.clear();
    for (const Message& message : channel->messages) {
      if (message.lender != nullptr) Complete(*message.lender);
    }
    channel->messages.clear();
  }
  for (auto& [key, gathering] : gatherings_) {
    std::lock_guard<std::mutex> lock(gathering->mutex);
    for (Rank* rank : gathering->arrived) Complete(*rank);
    gathering->arrived.clear();
  }
  for (auto& [key, rotation] : rotations_) {
    std::lock_guard<std::mutex> lock(rotation->mutex);
    for (std::size_t place = 0; place < rotation->here.size(); ++place) {
      if (rotation->here[place] == nullptr) continue;
      for (const View& array : rotation->arrays[place]) Zero(array);
      Complete(*rotation->here[place]);
      rotation->here[place] = nullptr;
      ++rotation->missing;
    }
  }
}

double Session::CheckWaits(double limit_s, std::int64_t now_ns) {
  double next_s = limit_s;
  if (failed_.load(std::memory_order_acquire)) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (finished_) return limit_s;
    const double left_s = kEndLimit_s - static_cast<double>(now_ns - failed_since_ns_) * 1e-9;
    if (left_s > 0) return std::min(left_s, limit_s);
    ends_with_error_.store(true, std::memory_order_release);
    finished_ = true;
    AddTotals();
    ReleaseEnds();
    return limit_s;
  }
  for (const auto& rank : ranks_) {
    const std::int64_t since_ns = rank->parked_since_ns.load(std::memory_order_relaxed);
    if (since_ns == 0) continue;
    // A rank at its end waits for nobody in particular: the limit counts from when anything last happened.
    const std::int64_t from_ns = rank->ended.load(std::memory_order_acquire)
                                     ? std::max(since_ns, last_progress_ns_.load(std::memory_order_relaxed))
                                     : since_ns;
    const double left_s = limit_s - static_cast<double>(now_ns - from_ns) * 1e-9;
    if (left_s > 0) {
      next_s = left_s < next_s ? left_s : next_s;
      continue;
    }
    std::lock_guard<std::mutex> lock(mutex_);
    // It may have gone on meanwhile; an exact look needs the lock only now.
    if (finished_ || failed_.load(std::memory_order_relaxed)) return limit_s;
    if (rank->parked_since_ns.load(std::memory_order_relaxed) != since_ns) continue;
    FailLocked(Reporter(*this).TimedOut(*rank, limit_s));
    return limit_s;
  }
  return next_s;
}

void Session::AddTotals() {
  Totals& totals = TheTotals();
  std::lock_guard<std::mutex> lock(totals.mutex);
  ++totals.runs;
  if (failed_.load(std::memory_order_relaxed)) ++totals.failed_runs;
  if (size() > totals.ranks) totals.ranks = size();
  for (const auto& rank : ranks_) {
    if (!rank->ended.load(std::memory_order_acquire)) continue;  // the others gave it up, and it still counts
    totals.messages += rank->messages;
    totals.size_bytes += rank->size_bytes;
    if (rank->longest_wait_s > totals.longest_wait_s) {
      totals.longest_wait_s = rank->longest_wait_s;
      totals.longest_wait_site = rank->longest_wait_site;
    }
  }
}

}  // namespace peerax
