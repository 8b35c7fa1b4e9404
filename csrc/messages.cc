// Messages between the ranks of a session: how the ends of a channel meet, and who copies. See session.h.
#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "faults.h"
#include "report.h"
#include "resume_pool.h"
#include "session.h"
#include "settings.h"

namespace peerax {
namespace {

// Up to this size a message of a pair is copied into a buffer if its receiver is not there yet, so that the sender
// need not wait; a larger one is copied once, straight from the sender's array.
constexpr std::size_t kEagerBytes = 64 * 1024;
// From this size on a receiver that waits copies by itself, on its own thread: both ends of an exchange then copy at
// the same time. Below, waking it would take longer than the copy.
constexpr std::size_t kHandOverBytes = 128 * 1024;
// How long a rank looks out for the other end of a large message before it parks: about as long as the copy takes, and
// a wake-up. It need not be woken then, and makes itself a copy that its sender would need a thread for.
constexpr std::int64_t kLookOutNs = 50'000;
constexpr std::int64_t kLookOutBytesPerNs = 10;
constexpr std::int64_t kLongestLookOutNs = 1'000'000;
// A sender of a pair that runs further ahead waits, or a loop would buffer without bound.
constexpr std::size_t kEagerMessages = 8;

template <typename Views>
std::size_t SizeBytes(const Views& views) {
  std::size_t size_bytes = 0;
  for (const auto& view : views) size_bytes += view.size_bytes;
  return size_bytes;
}

void Copy(void* to, const void* from, std::size_t size_bytes) {
  if (size_bytes != 0) std::memcpy(to, from, size_bytes);
}

}  // namespace

Owned::Owned(Owned&& other) noexcept : data(std::move(other.data)), counted_bytes(other.counted_bytes) {
  other.counted_bytes = 0;
}

Owned& Owned::operator=(Owned&& other) noexcept {
  std::swap(data, other.data);
  std::swap(counted_bytes, other.counted_bytes);
  return *this;
}

Owned::~Owned() {
  if (counted_bytes != 0) TheSettings().buffered_bytes.fetch_sub(static_cast<std::int64_t>(counted_bytes));
}

Rank::Ends& Session::FindEnds(Rank& rank, const Operation& operation) {
  auto [it, first_time] = rank.ends.try_emplace(&operation);
  Rank::Ends& ends = it->second;
  if (!first_time) return ends;
  std::lock_guard<std::mutex> lock(mutex_);
  if (operation.kind == Kind::kGather) {
    std::vector<std::int32_t> members;
    for (std::int32_t i = 0; i < size(); ++i) {
      if (operation.group[i] == operation.group[rank.index]) members.push_back(i);
    }
    auto& gathering = gatherings_[members];
    if (gathering == nullptr) gathering = std::make_unique<Gathering>(members.size());
    ends.gathering = gathering.get();
    return ends;
  }
  const auto& in_place = operation.in_place;
  if (std::find(in_place.begin(), in_place.end(), true) != in_place.end()) {
    auto rotation = std::make_unique<Rotation>(operation, rank.index);
    const auto& members = rotation->members;
    ends.place = std::find(members.begin(), members.end(), rank.index) - members.begin();
    ends.rotation = rotations_.try_emplace({&operation, members[0]}, std::move(rotation)).first->second.get();
  }
  if (operation.kind != Kind::kReceive && operation.destination[rank.index] >= 0) {
    ends.out = FindChannel(operation, rank.index, operation.destination[rank.index]);
  }
  if (operation.kind != Kind::kSend && operation.source[rank.index] >= 0) {
    ends.in = FindChannel(operation, operation.source[rank.index], rank.index);
  }
  return ends;
}

Channel* Session::FindChannel(const Operation& operation, std::int32_t source, std::int32_t destination) {
  const Operation* pair = operation.kind == Kind::kExchange ? &operation : nullptr;
  // A ppermute is a collective: ranks may call it at different lines, in branches of their own.
  if (operation.name == "ppermute") pair = permutes_.try_emplace(operation.destination, pair).first->second;
  auto& channel = channels_[{pair, source, destination, operation.tag, operation.pair, operation.path}];
  if (channel == nullptr) {
    channel = std::make_unique<Channel>(source, destination, operation.tag, operation.path, operation.pair, pair);
  }
  return channel.get();
}

void Session::StartSend(Rank& rank, const Operation& operation, const std::vector<ConstView>& leaves) {
  Open(rank, operation);
  if (operation.destination[rank.index] < 0) return;
  Rank::Ends& ends = FindEnds(rank, operation);
  Channel& channel = *ends.out;
  Enter(rank, operation, ends, SizeBytes(leaves));
  for (std::size_t i = 0; i < leaves.size(); ++i) Post(rank, channel, operation, i, leaves[i]);
}

void Session::StartReceive(Rank& rank, const Operation& operation, const std::vector<View>& leaves) {
  Open(rank, operation);
  if (operation.source[rank.index] < 0) {
    for (const View& leaf : leaves) Zero(leaf);
    return;
  }
  Rank::Ends& ends = FindEnds(rank, operation);
  Channel& channel = *ends.in;
  Enter(rank, operation, ends, SizeBytes(leaves));
  for (std::size_t i = 0; i < leaves.size(); ++i) Take(rank, channel, operation, i, leaves[i]);
}

void Session::StartExchange(Rank& rank, const Operation& operation, const std::vector<ConstView>& sent,
                            const std::vector<View>& received) {
  Open(rank, operation);
  Rank::Ends& ends = FindEnds(rank, operation);
  if (ends.out != nullptr || ends.in != nullptr) Enter(rank, operation, ends, SizeBytes(sent));
  std::vector<View> arrays;  // in place
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (operation.in_place[i]) {
      arrays.push_back(received[i]);
    } else if (ends.out != nullptr) {
      Post(rank, *ends.out, operation, i, sent[i]);
    }
  }
  for (std::size_t i = 0; i < received.size(); ++i) {
    if (operation.in_place[i]) continue;
    if (ends.in != nullptr) {
      Take(rank, *ends.in, operation, i, received[i]);
    } else {
      Zero(received[i]);
    }
  }
  if (!arrays.empty()) JoinRotation(rank, *ends.rotation, ends.place, std::move(arrays));
}

void Session::JoinRotation(Rank& rank, Rotation& rotation, std::size_t place, std::vector<View> arrays) {
  std::size_t size_bytes = 0;
  for (const View& array : arrays) size_bytes += array.size_bytes;
  const bool sends = rotation.cycle || place + 1 < rotation.members.size();
  faults::Delay();
  std::unique_lock<std::mutex> lock(rotation.mutex);
  if (failed_.load(std::memory_order_acquire)) {
    for (const View& array : arrays) Zero(array);
    return;
  }
  if (sends) {
    rank.messages += static_cast<std::int64_t>(arrays.size());
    rank.size_bytes += static_cast<std::int64_t>(size_bytes);
  }
  rotation.arrays[place] = std::move(arrays);
  if (--rotation.missing != 0) {
    rank.remaining.fetch_add(1, std::memory_order_relaxed);
    MayLookOut(rank, size_bytes);
    rotation.here[place] = &rank;
    return;
  }
  // The others wait for this one, and none of them can come again before it is completed.
  std::vector<Rank*> others;
  for (Rank*& other : rotation.here) {
    if (other != nullptr) others.push_back(other);
    other = nullptr;
  }
  rotation.missing = rotation.members.size();
  const auto move = std::make_shared<Move>(rotation.arrays, rotation.cycle);
  lock.unlock();
  faults::Delay();
  for (Rank* other : others) Matched(*other);
  MoveTogether(others, move);
  for (Rank* other : others) Complete(*other);
}

void Session::Post(Rank& rank, Channel& channel, const Operation& operation, std::size_t leaf, ConstView view) {
  faults::Delay();
  std::unique_lock<std::mutex> lock(channel.mutex);
  if (failed_.load(std::memory_order_acquire)) return;
  ++rank.messages;
  rank.size_bytes += static_cast<std::int64_t>(view.size_bytes);
  ++channel.sent;
  if (rank.span.sent == 0) rank.span.sent = channel.sent;
  if (!channel.receives.empty()) {
    const Receive receive = channel.receives.front();
    channel.receives.pop_front();
    lock.unlock();
    faults::Delay();
    Matched(*receive.rank);
    if (!TypesAgree(operation, leaf, view.size_bytes, *receive.operation, receive.leaf, receive.size_bytes, channel)) {
      Zero({receive.data, receive.size_bytes});
      Complete(*receive.rank);
    } else if (view.size_bytes < kHandOverBytes) {
      Copy(receive.data, view.data, view.size_bytes);
      Complete(*receive.rank);
    } else {
      HandOver(rank, view, receive);
    }
    return;
  }
  Message message;
  message.size_bytes = view.size_bytes;
  message.operation = &operation;
  message.leaf = leaf;
  const bool pair = channel.pair != nullptr || channel.half_of >= 0;
  bool lend = false;  // a half of a pair must not wait here, whatever comes before the other half
  if (channel.pair != nullptr) {
    lend = view.size_bytes > kEagerBytes || channel.messages.size() >= kEagerMessages;
  } else if (!pair) {
    lend = TheSettings().rendezvous.load(std::memory_order_relaxed);
  }
  if (lend) {
    message.data = view.data;
    message.lender = &rank;
    MayLookOut(rank, view.size_bytes);
    rank.remaining.fetch_add(1, std::memory_order_relaxed);
    channel.messages.push_back(std::move(message));
    return;
  }
  if (!pair) {
    const auto size_bytes = static_cast<std::int64_t>(view.size_bytes);
    const std::int64_t limit_bytes = TheSettings().buffer_limit_bytes.load(std::memory_order_relaxed);
    const std::int64_t now_bytes = TheSettings().buffered_bytes.fetch_add(size_bytes) + size_bytes;
    message.owned.counted_bytes = view.size_bytes;
    if (now_bytes > limit_bytes) {
      lock.unlock();
      Fail("PX307", {operation.site}, DescribeBufferLimit(rank, channel, operation, leaf, now_bytes, limit_bytes));
      return;
    }
  }
  if (!faults::NoMemory()) message.owned.data.reset(new (std::nothrow) char[view.size_bytes]);
  if (message.owned.data == nullptr) {
    lock.unlock();
    Fail("PX307", {operation.site}, {"no memory is left for a buffer of " + std::to_string(view.size_bytes) + " bytes"});
    return;
  }
  Copy(message.owned.data.get(), view.data, view.size_bytes);
  message.data = message.owned.data.get();
  channel.messages.push_back(std::move(message));
}

void Session::Take(Rank& rank, Channel& channel, const Operation& operation, std::size_t leaf, View view) {
  faults::Delay();
  std::unique_lock<std::mutex> lock(channel.mutex);
  if (failed_.load(std::memory_order_acquire)) {
    Zero(view);
    return;
  }
  ++channel.received;
  channel.last_received = &operation;
  if (rank.span.received == 0) rank.span.received = channel.received;
  if (channel.messages.empty()) {
    rank.remaining.fetch_add(1, std::memory_order_relaxed);
    MayLookOut(rank, view.size_bytes);
    channel.receives.push_back({view.data, view.size_bytes, &operation, leaf, &rank});
    return;
  }
  const Message message = std::move(channel.messages.front());
  channel.messages.pop_front();
  lock.unlock();
  faults::Delay();
  if (message.lender != nullptr) Matched(*message.lender);
  if (TypesAgree(*message.operation, message.leaf, message.size_bytes, operation, leaf, view.size_bytes, channel)) {
    Copy(view.data, message.data, view.size_bytes);
  } else {
    Zero(view);
  }
  if (message.lender != nullptr) Complete(*message.lender);
}

bool Session::TypesAgree(const Operation& sent, std::size_t sent_leaf, std::size_t sent_bytes,
                         const Operation& received, std::size_t received_leaf, std::size_t received_bytes,
                         const Channel& channel) {
  if (&sent == &received && sent_leaf == received_leaf) return true;
  const std::string& sent_type = sent.types[sent_leaf];
  const std::string& received_type = received.types[received_leaf];
  if (sent_type == received_type && sent_bytes == received_bytes) return true;
  const std::string& received_site = received.kind == Kind::kExchange ? received.receive_site : received.site;
  Fail("PX304", {sent.site, received_site}, DescribeMismatch(channel, sent_type, received_type));
  return false;
}

void Session::MayLookOut(Rank& rank, std::size_t size_bytes) {
  if (size_bytes < kHandOverBytes || !may_look_out_) return;
  const std::int64_t for_ns = kLookOutNs + static_cast<std::int64_t>(size_bytes) / kLookOutBytesPerNs;
  rank.look_out_ns = std::max(rank.look_out_ns, std::min(for_ns, kLongestLookOutNs));
}

// True: nothing else of the operation is open.
bool Session::LookOut(Rank& rank) {
  const std::int64_t until_ns = NowNs() + rank.look_out_ns;
  rank.errand_state.store(ErrandState::kWelcome, std::memory_order_release);
  while (rank.remaining.load(std::memory_order_acquire) != 1 && NowNs() < until_ns) {
    if (rank.errand_state.load(std::memory_order_acquire) == ErrandState::kThere) {
      RunErrand(rank);
      rank.errand_state.store(ErrandState::kWelcome, std::memory_order_release);
    } else {
      std::this_thread::yield();
    }
  }
  faults::Delay();
  ErrandState state = ErrandState::kWelcome;
  if (!rank.errand_state.compare_exchange_strong(state, ErrandState::kRefused, std::memory_order_acq_rel)) {
    while (rank.errand_state.load(std::memory_order_acquire) != ErrandState::kThere) std::this_thread::yield();
    RunErrand(rank);
    rank.errand_state.store(ErrandState::kRefused, std::memory_order_release);
  }
  return rank.remaining.load(std::memory_order_acquire) == 1;
}

void Session::RunErrand(Rank& rank) {
  const Errand errand = std::move(rank.errand);
  if (errand.move != nullptr) {
    errand.move->Help();
    return;
  }
  Copy(errand.to.data, errand.from.data, errand.from.size_bytes);
  Complete(*errand.sender);
  rank.remaining.fetch_sub(1, std::memory_order_acq_rel);
}

// As many threads as there are ranks or cores: those that look out, then resume threads. A helper that comes too late
// finds nothing to do, so nobody counts it as active.
void Session::MoveTogether(const std::vector<Rank*>& others, const std::shared_ptr<Move>& move) {
  static const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  std::size_t helpers = std::min({others.size() + 1, cores, move->thread_limit()}) - 1;
  for (auto other = others.begin(); other != others.end() && helpers != 0; ++other) {
    ErrandState state = ErrandState::kWelcome;
    if ((*other)->errand_state.compare_exchange_strong(state, ErrandState::kComing, std::memory_order_acq_rel)) {
      faults::Delay();
      (*other)->errand = {{}, {}, nullptr, move};
      (*other)->errand_state.store(ErrandState::kThere, std::memory_order_release);
      --helpers;
    }
  }
  for (; helpers != 0; --helpers) RunOnResumeThread([move] { move->Help(); });
  move->Finish();
}

// The receiver copies, if it looks out, or else its resume thread; the sender's array is lent until then. That thread counts as active from
// now on, and if this was the receiver's last open part, it is the receiver that goes on with that count.
void Session::HandOver(Rank& sender, ConstView from, const Receive& to) {
  sender.remaining.fetch_add(1, std::memory_order_relaxed);
  MayLookOut(sender, from.size_bytes);
  ErrandState state = ErrandState::kWelcome;
  if (to.rank->errand_state.compare_exchange_strong(state, ErrandState::kComing, std::memory_order_acq_rel)) {
    faults::Delay();
    to.rank->errand = {from, {to.data, to.size_bytes}, &sender, nullptr};
    to.rank->errand_state.store(ErrandState::kThere, std::memory_order_release);
    return;
  }
  active_.fetch_add(1, std::memory_order_acq_rel);
  RunOnResumeThread([this, keep = shared_from_this(), &sender, from, to] {
    Copy(to.data, from.data, from.size_bytes);
    Complete(sender);
    faults::Delay();
    if (to.rank->remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      Resume(*to.rank);
    } else if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      OnQuiet();
    }
  });
}

}  // namespace peerax
