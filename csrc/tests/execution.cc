// See execution.h.
#include "execution.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "faults.h"
#include "watchdog.h"

namespace peerax::stress {
namespace {

constexpr std::chrono::seconds kCollectiveLimit(30);
constexpr std::chrono::seconds kRunLimit(60);

std::uint64_t Word(Content content, std::size_t i) { return content == kZeros ? 0 : content * (2 * i + 1) + i; }

void Fill(char* data, std::size_t size_bytes, Content content) {
  for (std::size_t at = 0; at < size_bytes; at += 8) {
    const std::uint64_t word = Word(content, at / 8);
    std::memcpy(data + at, &word, std::min<std::size_t>(8, size_bytes - at));
  }
}

bool Contains(const char* data, std::size_t size_bytes, Content content) {
  for (std::size_t at = 0; at < size_bytes; at += 8) {
    const std::uint64_t word = Word(content, at / 8);
    if (std::memcmp(data + at, &word, std::min<std::size_t>(8, size_bytes - at)) != 0) return false;
  }
  return true;
}

// Just large enough, so that the address sanitizer sees a byte too many.
std::unique_ptr<char[]> Filled(std::size_t size_bytes, Content content) {
  std::unique_ptr<char[]> data(new char[size_bytes]);
  Fill(data.get(), size_bytes, content);
  return data;
}

constexpr Content kGarbage = 0x5bd1e9955bd1e995;

}  // namespace

void Die(const std::string& message) {
  std::fprintf(stderr, "channel_stress: %s\n", message.c_str());
  std::fflush(nullptr);
  std::_Exit(1);
}

void Tally::Add(const Tally& other) {
  runs += other.runs;
  failed_runs += other.failed_runs;
  steps += other.steps;
  messages += other.messages;
  size_bytes += other.size_bytes;
  failed_messages += other.failed_messages;
  failed_size_bytes += other.failed_size_bytes;
  for (const auto& [code, count] : other.codes) codes[code] += count;
}

Execution::Execution(const Program& program, std::int64_t run, int repeats, bool limits_are_short)
    : program_(program), run_(run), limits_are_short_(limits_are_short), ranks_(program.size) {
  for (std::int32_t i = 0; i < program.size; ++i) {
    ranks_[i].index = i;
    ranks_[i].repeats_left = repeats;
  }
}

Tally Execution::Run() {
  std::vector<std::thread> threads;
  for (RankRun& r : ranks_) threads.emplace_back([this, &r] { Enter(r); });
  for (std::thread& thread : threads) thread.join();
  std::unique_lock<std::mutex> lock(mutex_);
  if (!changed_.wait_for(lock, kRunLimit, [&] { return gone_ == program_.size; })) {
    Die("program " + std::to_string(program_.seed) + " does not end");
  }
  Tally tally;
  for (const RankRun& r : ranks_) {
    CheckOutcome(r);
    tally.Add(r.tally);
  }
  tally.runs = ranks_[0].tally.runs;
  tally.failed_runs = ranks_[0].failed;
  if (ranks_[0].failed) {
    ++tally.codes[ranks_[0].code];
    tally.failed_messages = tally.messages;
    tally.failed_size_bytes = tally.size_bytes;
  }
  return tally;
}

void Execution::Enter(RankRun& r) {
  --r.repeats_left;
  ++r.tally.runs;
  r.next = 0;
  // Ranks are not placed on devices in order, and there are more devices than ranks.
  const std::int32_t device = (r.index + 1) % (program_.size + 1);
  Session* session = JoinSession(run_, &program_, r.index, device, program_.size, program_.size + 1);
  r.rank = &session->rank_on_device(device);
  GoOn(r);
}

void Execution::GoOn(RankRun& r) {
  while (r.next < program_.steps.size()) {
    const Step& step = program_.steps[r.next++];
    if (step.pause_us[r.index] != 0) std::this_thread::sleep_for(std::chrono::microseconds(step.pause_us[r.index]));
    if (step.runs[r.index] && !TakeStep(r, step)) return;
  }
  Leave(r);
}

bool Execution::TakeStep(RankRun& r, const Step& step) {
  Rank& rank = *r.rank;
  const Operation& operation = step.operation;
  const bool sends = operation.kind == Kind::kSend || operation.kind == Kind::kExchange;
  const bool receives = operation.kind == Kind::kReceive || operation.kind == Kind::kExchange;
  std::vector<ConstView> sent;
  std::vector<View> received;
  for (std::size_t i = 0; sends && i < step.sizes.size(); ++i) {
    r.sent.push_back(Filled(step.sizes[i], step.sent[r.index][i] | 1));
    sent.push_back({r.sent.back().get(), step.sizes[i]});
    if (operation.destination[r.index] < 0) continue;
    ++r.tally.messages;
    r.tally.size_bytes += static_cast<std::int64_t>(step.sizes[i]);
  }
  for (std::size_t i = 0; receives && i < step.received_sizes.size(); ++i) {
    const bool in_place = operation.kind == Kind::kExchange && operation.in_place[i];
    r.received.push_back(Filled(step.received_sizes[i], in_place ? step.sent[r.index][i] | 1 : kGarbage));
    received.push_back({r.received.back().get(), step.received_sizes[i]});
  }
  ++r.tally.steps;
  const std::shared_ptr<Session> session = operation.kind == Kind::kGather ? rank.session->shared_from_this() : nullptr;
  switch (operation.kind) {
    case Kind::kSend:
      rank.session->StartSend(rank, operation, sent);
      break;
    case Kind::kReceive:
      rank.session->StartReceive(rank, operation, received);
      break;
    case Kind::kExchange:
      rank.session->StartExchange(rank, operation, sent, received);
      break;
    case Kind::kGather:
      session->StartGather(rank, operation);
      break;
  }
  const auto done = [this, &r, &step, session] {
    if (step.operation.kind == Kind::kGather) {
      if (session->MayEnterCollective(*r.rank)) {
        JoinCollective(r, step);
        return true;
      }
      r.rank->keep = nullptr;
      Left(r, session->failure());
      return false;
    }
    return AfterStep(r, step);
  };
  const bool complete = rank.session->Finish(rank, [&] {
    return [this, &r, done] {
      if (done()) GoOn(r);
    };
  });
  return complete && done();  // otherwise the rank may be on another thread already, and must not be touched
}

bool Execution::AfterStep(RankRun& r, const Step& step) {
  const bool failed = r.rank->session->failure() != nullptr;
  for (std::size_t i = 0; i < r.received.size(); ++i) {
    const char* data = r.received[i].get();
    const std::size_t size_bytes = step.received_sizes[i];
    if (Contains(data, size_bytes, step.received[r.index][i])) continue;
    if (!failed || !Contains(data, size_bytes, kZeros)) {
      Wrong(r, step.operation.site + ", leaf " + std::to_string(i) + ": wrong data");
    }
  }
  // Nobody may read from a send that is complete.
  for (std::size_t i = 0; i < r.sent.size(); ++i) Fill(r.sent[i].get(), step.sizes[i], kGarbage);
  r.sent.clear();
  r.received.clear();
  return true;
}

// As XLA's rendezvous: it blocks the thread until all members are here.
void Execution::JoinCollective(RankRun& r, const Step& step) {
  const std::int32_t group = step.operation.group[r.index];
  int members = 0;
  for (std::int32_t other : step.operation.group) members += other == group;
  std::unique_lock<std::mutex> lock(mutex_);
  int& here = in_collective_[{&step, group, r.repeats_left}];
  ++here;
  changed_.notify_all();
  if (!changed_.wait_for(lock, kCollectiveLimit, [&] { return here == members; })) {
    Wrong(r, step.operation.site + ": alone in a collective");
  }
}

void Execution::Leave(RankRun& r) {
  const std::shared_ptr<Session> session = std::move(r.rank->keep);
  Rank& rank = *r.rank;
  session->StartEnd(rank);
  const auto done = [this, &r, session] { Left(r, session->failure()); };
  if (session->Finish(rank, [&] { return done; })) done();
}

void Execution::Left(RankRun& r, const Failure* failure) {
  if (failure == nullptr && r.repeats_left > 0) {
    Enter(r);
    return;
  }
  if (failure != nullptr) {
    r.failed = true;
    r.code = failure->code;
    r.report = failure->text;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ++gone_;
  changed_.notify_all();  // under the lock: the execution is gone once it is released
}

void Execution::CheckOutcome(const RankRun& r) const {
  if (r.report != ranks_[0].report) Wrong(r, "reports differ:\n" + r.report + "\nand on rank 0:\n" + ranks_[0].report);
  if (!r.failed) {
    if (!program_.may_succeed) Wrong(r, "succeeds instead of " + *program_.codes.begin());
    return;
  }
  if (limits_are_short_ && r.code == "PX301") return;
  if (faults::kOn && r.code == "PX307" && r.report.find("no memory is left") != std::string::npos) return;
  if (program_.codes.count(r.code) == 0) Wrong(r, "unexpected failure\n" + r.report);
  if (r.report.find("--> " + program_.site) == std::string::npos) {
    Wrong(r, "the report does not name " + program_.site + "\n" + r.report);
  }
}

void Execution::Wrong(const RankRun& r, const std::string& what) const {
  Die("program " + std::to_string(program_.seed) + ", " + std::to_string(program_.size) + " ranks, rank " +
      std::to_string(r.index) + ": " + what);
}

}  // namespace peerax::stress
