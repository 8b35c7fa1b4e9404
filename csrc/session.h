// One execution of one shard_map body on all ranks: who runs, who waits for whom, and the channels between them.
//
// A rank calls Start* in program order, never two at a time, then Finish. Finish says "done" or parks the rank:
// then the given function is called later, once, on a resume thread. A run that fails lets every rank go on at once
// with zeros, so that nobody waits for a rank that has left. The end is a barrier, or a rank could return values while
// another is about to fail. A failed run ends with an error on all ranks if it did so on one, or the others would wait
// for that one in the rest of the program; it does on a rank that comes to a collective, and on one that never comes
// to the end, of which the others learn by a limit.
//
// Exactness: `active_` counts the ranks that run. A rank that is woken is counted by its waker, which runs itself; so
// zero means that nobody runs and nobody is about to, and the state is final: all ended, or stuck for ever.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "channel.h"
#include "operation.h"
#include "rotation.h"
#include "trace.h"

namespace peerax {

class Session;

std::int64_t NowNs();

// The members of one collective that have arrived.
struct Gathering {
  explicit Gathering(std::size_t size) : size(size) {}

  const std::size_t size;

  std::mutex mutex;  // guards what follows
  std::vector<Rank*> arrived;
};

// A copy that a rank which looks out makes for the sender of a message to it; or a move that it helps with.
struct Errand {
  ConstView from;
  View to;
  Rank* sender = nullptr;
  std::shared_ptr<Move> move;
};
// kComing: somebody writes the errand.
enum class ErrandState { kRefused, kWelcome, kComing, kThere };

struct Rank {
  Session* session = nullptr;
  std::int32_t index = 0;
  std::shared_ptr<Session> keep;  // set while the rank is inside the body; whoever ends it takes it out

  // Parts of the current operation that are open, plus one while it is being started. Whoever takes it to zero
  // resumes the rank.
  std::atomic<int> remaining{0};
  std::function<void()> resume;                     // set before the rank parks
  std::int64_t look_out_ns = 0;  // how long it looks for the rest of its operation before it parks
  std::atomic<ErrandState> errand_state{ErrandState::kRefused};
  Errand errand;
  std::atomic<const Operation*> operation{nullptr};  // the current one
  std::atomic<std::int64_t> parked_since_ns{0};     // 0: runs
  std::atomic<bool> ended{false};
  bool waits_for_end = false;  // guarded by Session::mutex_
  std::atomic<std::int64_t> matched_ns{0};  // when the last of its other ends was there, if it is traced
  // What it has taken part in last, and how often, for reports.
  std::atomic<const Operation*> last{nullptr};
  std::atomic<std::int64_t> last_number{0};
  std::atomic<std::int64_t> number{0};  // how often it has come by the current operation
  bool may_enter = false;  // its gathering is complete; written before the rank is completed

  // Only the rank itself uses these.
  struct Ends {
    Channel* out = nullptr;
    Channel* in = nullptr;
    Gathering* gathering = nullptr;
    Rotation* rotation = nullptr;
    std::size_t place = 0;  // in it
    std::int64_t number = 0;  // how often the rank has come by
  };
  std::unordered_map<const Operation*, Ends> ends;
  bool takes_part = false;  // in the current operation
  TracedSpan span{};
  std::int64_t messages = 0;
  std::int64_t size_bytes = 0;
  double longest_wait_s = 0;
  std::string longest_wait_site;
};

struct Failure {
  std::string code;
  std::string text;  // the whole report
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(std::int32_t size, std::int32_t devices);
  ~Session();

  std::int32_t size() const { return static_cast<std::int32_t>(ranks_.size()); }
  Rank& rank(std::int32_t index) { return *ranks_[index]; }
  Rank& rank_on_device(std::int32_t device) { return *on_device_[device].load(std::memory_order_acquire); }
  void PlaceRank(std::int32_t index, std::int32_t device) {
    if (trace_ != nullptr) trace_->ranks[index].begin_ns = NowNs();
    on_device_.at(device).store(ranks_[index].get(), std::memory_order_release);
  }

  // Start an operation; Finish must follow.
  void StartSend(Rank& rank, const Operation& operation, const std::vector<ConstView>& leaves);
  void StartReceive(Rank& rank, const Operation& operation, const std::vector<View>& leaves);
  // A leaf in place is sent from the memory that it is received in.
  void StartExchange(Rank& rank, const Operation& operation, const std::vector<ConstView>& sent,
                     const std::vector<View>& received);
  // Waits until all members of the rank's group are here. After a failure nobody may go on into the collective:
  // false says so, and that the rank has left the session.
  void StartGather(Rank& rank, const Operation& operation);
  bool MayEnterCollective(Rank& rank);
  void StartEnd(Rank& rank);

  // True: the operation is complete. False: resume() will be called when it is.
  // make_resume is called only if the rank has to wait.
  template <typename MakeResume>
  bool Finish(Rank& rank, MakeResume make_resume) {
    if (rank.remaining.load(std::memory_order_acquire) == 1) {
      rank.remaining.store(0, std::memory_order_relaxed);
      Exit(rank);
      if (rank.ended.load(std::memory_order_relaxed)) Leave();
      return true;
    }
    if (rank.look_out_ns != 0 && LookOut(rank)) {
      rank.remaining.store(0, std::memory_order_relaxed);
      Exit(rank);
      return true;
    }
    rank.resume = make_resume();
    return Park(rank);
  }

  // The report of a failed run, or nullptr. Stable once StartEnd's wait is over.
  bool EndsWithError() const { return ends_with_error_.load(std::memory_order_acquire); }
  const Failure* failure() const { return failed_.load(std::memory_order_acquire) ? &failure_ : nullptr; }
  // The first failure counts. evidence: one line each, after the sites.
  void Fail(const std::string& code, const std::vector<std::string>& sites, const std::vector<std::string>& evidence);

  // Lets all ranks go on to their ends, for a run whose caller no longer wants it.
  void Interrupt();
  // What each rank is doing now, for people.
  std::vector<std::string> Describe();
  // For a run that is over: ranks that XLA ended by an error have never left.
  void Abandon();

  // Watchdog: fails the run if a rank has waited longer than limit_s. Returns seconds until it should look again.
  double CheckWaits(double limit_s, std::int64_t now_ns);

 private:
  friend class Reporter;

  void Open(Rank& rank, const Operation& operation);
  // The rank takes part in the operation that is open; size_bytes are those of its messages in one direction.
  void Enter(Rank& rank, const Operation& operation, Rank::Ends& ends, std::size_t size_bytes);
  void Exit(Rank& rank);
  void Matched(Rank& rank) {
    if (trace_ != nullptr) rank.matched_ns.store(NowNs(), std::memory_order_relaxed);
  }
  Rank::Ends& FindEnds(Rank& rank, const Operation& operation);
  Channel* FindChannel(const Operation& operation, std::int32_t source, std::int32_t destination);
  void Post(Rank& rank, Channel& channel, const Operation& operation, std::size_t leaf, ConstView view);
  void Take(Rank& rank, Channel& channel, const Operation& operation, std::size_t leaf, View view);
  // The last rank to come moves the arrays of all.
  void JoinRotation(Rank& rank, Rotation& rotation, std::size_t place, std::vector<View> arrays);
  void MoveTogether(const std::vector<Rank*>& others, const std::shared_ptr<Move>& move);
  bool TypesAgree(const Operation& sent, std::size_t sent_leaf, std::size_t sent_bytes, const Operation& received,
                  std::size_t received_leaf, std::size_t received_bytes, const Channel& channel);
  void MayLookOut(Rank& rank, std::size_t size_bytes);
  bool LookOut(Rank& rank);
  void RunErrand(Rank& rank);
  bool Park(Rank& rank);
  void EndRank(Rank& rank);
  void Leave();
  void HandOver(Rank& sender, ConstView from, const Receive& to);
  void Complete(Rank& rank);
  void Resume(Rank& rank);
  void OnQuiet();
  void FailLocked(Failure failure);  // mutex_ held
  void ReleaseAll();                 // mutex_ held
  void ReleaseEnds();                // mutex_ held
  void AddTotals();

  std::unique_ptr<TracedRun> trace_;  // nullptr: nobody wants to know
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::atomic<Rank*>> on_device_;
  std::atomic<std::int32_t> active_;
  const bool may_look_out_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> ends_with_error_{false};  // final when the ends are released
  std::atomic<std::int64_t> last_progress_ns_{0};  // when a rank last began or ended a wait

  std::mutex mutex_;  // guards what follows; taken before any channel's mutex
  Failure failure_;   // written once, before failed_ is set
  std::int64_t failed_since_ns_ = 0;
  bool finished_ = false;  // the end was reached by all, or is not waited for any more
  using ChannelKey = std::tuple<const Operation*, std::int32_t, std::int32_t, std::int64_t, std::int64_t, std::string>;
  std::map<ChannelKey, std::unique_ptr<Channel>> channels_;
  std::map<std::vector<std::int32_t>, std::unique_ptr<Gathering>> gatherings_;  // by members
  std::map<std::vector<std::int32_t>, const Operation*> permutes_;             // by destinations
  std::map<std::pair<const Operation*, std::int32_t>, std::unique_ptr<Rotation>> rotations_;  // by first member
};

}  // namespace peerax
