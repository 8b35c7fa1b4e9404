// See program.h.
#include "program.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>
#include <utility>

namespace peerax::stress {
namespace {

using Perm = std::vector<std::pair<std::int32_t, std::int32_t>>;

// Both sides of every threshold of the channel.
constexpr std::size_t kSizes[] = {0,         1,          8,           100,         4096,        65536 - 8,
                                  65536,     65536 + 1,  131072 - 1,  131072,      131072 + 16, 262144};
constexpr std::size_t kLarge = 1 << 20;
constexpr std::int64_t kMistakeTag = 1000;  // no other step uses it or the next one

class Maker {
 public:
  Maker(std::uint64_t seed, bool rendezvous) : random_(seed), rendezvous_(rendezvous) {
    constexpr std::int32_t sizes[] = {1, 2, 2, 3, 4, 4, 5, 8, 8, 13};
    program_.seed = seed;
    program_.size = sizes[random_.Below(10)];
  }

  Program Make(Mistake mistake) {
    if (mistake != Mistake::kNone) program_.size = std::max(program_.size, 2);
    // Nothing else may use up the buffers where they are small.
    if (mistake != Mistake::kBufferLimit) AddSteps(random_.Below(12) + (mistake == Mistake::kNone ? 1 : 0));
    if (mistake != Mistake::kNone) AddMistake(mistake);
    return std::move(program_);
  }

 private:
  std::int32_t size() const { return program_.size; }

  Step& Add(Kind kind, const char* name, std::int64_t tag, std::vector<std::size_t> sizes) {
    const std::string line = std::to_string(program_.steps.size() + 1);
    Step& step = program_.steps.emplace_back();
    static std::atomic<std::int64_t> operations{0};
    step.operation.id = operations.fetch_add(1, std::memory_order_relaxed);
    step.operation.kind = kind;
    step.operation.name = name;
    step.operation.site = "stress.py:" + line;
    if (kind == Kind::kExchange) step.operation.receive_site = "receive.py:" + line;
    step.operation.tag = tag;
    step.operation.destination.assign(size(), -1);
    step.operation.source.assign(size(), -1);
    for (std::size_t size_bytes : sizes) step.operation.types.push_back("u8[" + std::to_string(size_bytes) + "]");
    step.sizes = step.received_sizes = std::move(sizes);
    step.runs.assign(size(), true);
    step.sent.assign(size(), std::vector<Content>(step.sizes.size(), kZeros));
    step.received = step.sent;
    step.pause_us.assign(size(), 0);
    for (int& pause_us : step.pause_us) pause_us = random_.OneIn(40) ? random_.Below(2000) : 0;
    return step;
  }

  void Send(Step& step, const Perm& perm) {
    for (const auto& [source, destination] : perm) {
      step.operation.destination[source] = destination;
      for (Content& content : step.sent[source]) content = random_.Next() | 1;
    }
  }

  void Receive(Step& step, const Perm& perm, const Step& sent) {
    for (const auto& [source, destination] : perm) {
      step.operation.source[destination] = source;
      step.received[destination] = sent.sent[source];
    }
  }

  Perm RandomPerm() {
    const auto sources = random_.Shuffled(size()), destinations = random_.Shuffled(size());
    const int pairs = random_.Below(size() + 1);
    Perm perm;
    for (int i = 0; i < pairs; ++i) perm.emplace_back(sources[i], destinations[i]);
    return perm;
  }

  Perm RandomChain() {  // no cycle
    const auto order = random_.Shuffled(size());
    Perm perm;
    for (int i = 0; i + 1 < size(); ++i) {
      if (!random_.OneIn(3)) perm.emplace_back(order[i], order[i + 1]);
    }
    return perm;
  }

  Perm RandomRing() {
    const auto order = random_.Shuffled(size());
    const int length = 1 + random_.Below(size());
    Perm perm;
    for (int i = 0; i < length; ++i) perm.emplace_back(order[i], order[(i + 1) % length]);
    return perm;
  }

  std::vector<std::size_t> RandomSizes() {
    std::vector<std::size_t> sizes(random_.OneIn(20) ? 0 : random_.OneIn(10) ? 12 : 1 + random_.Below(3));
    for (std::size_t& size_bytes : sizes) {
      size_bytes = random_.OneIn(80) ? kLarge : kSizes[random_.Below(random_.OneIn(4) ? 12 : 5)];
    }
    return sizes;
  }

  void AddSteps(int count) {
    std::vector<std::tuple<const Step*, Perm>> outstanding;
    for (int i = 0; i < count; ++i) {
      switch (random_.Below(4)) {
        case 0:
          AddExchange();
          break;
        case 1:
          AddGather();
          break;
        case 2:
          AddChain();
          break;
        default:
          if (rendezvous_) {
            AddExchange();
          } else if (random_.OneIn(3)) {
            Drain(&outstanding);
          } else {
            const Perm perm = RandomPerm();
            Step& step = Add(Kind::kSend, "psend", random_.Below(2), RandomSizes());
            Send(step, perm);
            outstanding.emplace_back(&step, perm);
          }
      }
    }
    Drain(&outstanding);
  }

  void AddExchange() {
    Step& step = Add(Kind::kExchange, "psend", random_.Below(2), RandomSizes());
    const Perm perm = random_.OneIn(2) ? RandomRing() : RandomPerm();
    Send(step, perm);
    Receive(step, perm, step);
    const int in_place = random_.Below(3);  // none, all, or some leaves
    for (std::size_t i = 0; i < step.sizes.size(); ++i) {
      step.operation.in_place.push_back(in_place == 1 || (in_place == 2 && random_.OneIn(2)));
    }
  }

  // Some groups of ranks; no member of the others comes.
  void AddGather() {
    Step& step = Add(Kind::kGather, "psum", 0, {});
    const int groups = 1 + random_.Below(size());
    std::vector<bool> comes(groups);
    for (int i = 0; i < groups; ++i) comes[i] = !random_.OneIn(4);
    for (std::int32_t i = 0; i < size(); ++i) {
      step.operation.group.push_back(random_.Below(groups));
      step.runs[i] = comes[step.operation.group[i]];
    }
  }

  // Legal under rendezvous too, in both orders.
  void AddChain() {
    const Perm perm = RandomChain();
    const auto sizes = RandomSizes();
    const std::int64_t tag = 2 + random_.Below(2);
    if (random_.OneIn(2)) {
      Step& send = Add(Kind::kSend, "psend", tag, sizes);
      Send(send, perm);
      Receive(Add(Kind::kReceive, "precv", tag, sizes), perm, send);
    } else {
      Step& receive = Add(Kind::kReceive, "precv", tag, sizes);
      Step& send = Add(Kind::kSend, "psend", tag, sizes);
      Send(send, perm);
      Receive(receive, perm, send);
    }
  }

  // Receives everything that was sent, the oldest first.
  void Drain(std::vector<std::tuple<const Step*, Perm>>* outstanding) {
    for (const auto& [send, perm] : *outstanding) {
      Receive(Add(Kind::kReceive, "precv", send->operation.tag, send->sizes), perm, *send);
    }
    outstanding->clear();
  }

  void Expect(std::set<std::string> codes, const Step& step) {
    program_.codes = std::move(codes);
    program_.may_succeed = program_.codes.empty();
    if (!program_.may_succeed) program_.site = step.operation.site;
  }

  void AddMistake(Mistake mistake) {
    const auto order = random_.Shuffled(size());
    const std::int32_t a = order[0], b = order[1];
    const Perm one = {{a, b}};
    const auto sizes = random_.OneIn(2) ? RandomSizes() : std::vector<std::size_t>{65536};
    const auto some = sizes.empty() ? std::vector<std::size_t>{131072} : sizes;
    switch (mistake) {
      case Mistake::kLoneReceive: {
        Step& receive = Add(Kind::kReceive, "precv", kMistakeTag, some);
        receive.operation.source[b] = a;
        return Expect({"PX202"}, receive);
      }
      case Mistake::kLoneSend: {
        Step& send = Add(Kind::kSend, "psend", kMistakeTag, some);
        Send(send, one);
        return Expect({"PX201"}, send);
      }
      case Mistake::kMismatch: {
        const bool send_first = random_.OneIn(2);
        Step& first = Add(send_first ? Kind::kSend : Kind::kReceive, "first", kMistakeTag, some);
        Step& second = Add(send_first ? Kind::kReceive : Kind::kSend, "second", kMistakeTag, some);
        Step& send = send_first ? first : second;
        Step& receive = send_first ? second : first;
        Send(send, one);
        receive.operation.source[b] = a;
        receive.received_sizes[0] += 4;
        receive.operation.types[0] = "u8[" + std::to_string(receive.received_sizes[0]) + "]";
        Expect({"PX304"}, send);
        return AddSteps(random_.Below(6));
      }
      case Mistake::kCycle: {
        const Perm ring = RandomRing();
        Step& receive = Add(Kind::kReceive, "precv", kMistakeTag, some);
        Step& send = Add(Kind::kSend, "psend", kMistakeTag, some);
        Send(send, ring);
        Receive(receive, ring, send);
        return Expect({"PX302"}, receive);
      }
      case Mistake::kSendCycle: {
        const Perm ring = RandomRing();
        Step& send = Add(Kind::kSend, "psend", kMistakeTag, some);
        Send(send, ring);
        Receive(Add(Kind::kReceive, "precv", kMistakeTag, some), ring, send);
        return Expect(rendezvous_ ? std::set<std::string>{"PX302"} : std::set<std::string>{}, send);
      }
      case Mistake::kCrossedTags: {
        Step& send = Add(Kind::kSend, "psend", kMistakeTag, some);
        Send(send, one);
        Step& receive = Add(Kind::kReceive, "precv", kMistakeTag + 1, some);
        receive.operation.source[b] = a;
        return Expect({rendezvous_ ? "PX302" : "PX205"}, receive);
      }
      case Mistake::kGatherMissed: {
        Step& gather = Add(Kind::kGather, "psum", 0, {});
        gather.operation.group.assign(size(), 0);
        gather.runs[a] = false;
        return Expect({"PX209"}, gather);
      }
      case Mistake::kGatherAgainstReceive: {
        Step& receive = Add(Kind::kReceive, "precv", kMistakeTag, some);
        receive.operation.source[b] = a;
        Step& gather = Add(Kind::kGather, "psum", 0, {});
        gather.operation.group.assign(size(), 0);
        Step& send = Add(Kind::kSend, "psend", kMistakeTag, some);
        Send(send, one);
        return Expect({"PX302"}, receive);
      }
      case Mistake::kExchangeMissed: {
        Step& step = Add(Kind::kExchange, "psend", kMistakeTag, some);
        step.operation.receive_site = step.operation.site;
        step.operation.in_place.assign(some.size(), true);
        Perm perm;  // a chain or ring of all ranks
        for (std::int32_t i = 0; i + 1 < size(); ++i) perm.emplace_back(order[i], order[i + 1]);
        if (random_.OneIn(2)) perm.emplace_back(order[size() - 1], order[0]);
        Send(step, perm);
        Receive(step, perm, step);
        step.runs[order[random_.Below(size())]] = false;
        return Expect({"PX201", "PX202"}, step);
      }
      case Mistake::kBufferLimit: {
        // b cannot receive the large message before a has sent it.
        Step& large = Add(Kind::kSend, "psend", kMistakeTag, {kSmallBufferBytes + 1});
        Send(large, one);
        Step& small = Add(Kind::kSend, "psend", kMistakeTag + 1, {8});
        Send(small, one);
        Receive(Add(Kind::kReceive, "precv", kMistakeTag + 1, {8}), one, small);
        Receive(Add(Kind::kReceive, "precv", kMistakeTag, {kSmallBufferBytes + 1}), one, large);
        return Expect({"PX307"}, large);
      }
      case Mistake::kLate: {
        Step& send = Add(Kind::kSend, "psend", kMistakeTag, some);
        Send(send, one);
        send.pause_us[a] = kLate_us;
        Receive(Add(Kind::kReceive, "precv", kMistakeTag, some), one, send);
        return Expect({"PX301"}, program_.steps.back());
      }
      default:
        return;
    }
  }

  Random random_;
  const bool rendezvous_;
  Program program_;
};

}  // namespace

std::uint64_t Random::Next() {
  state_ += 0x9e3779b97f4a7c15;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::vector<std::int32_t> Random::Shuffled(std::int32_t size) {
  std::vector<std::int32_t> order(size);
  for (std::int32_t i = 0; i < size; ++i) order[i] = i;
  for (std::int32_t i = size - 1; i > 0; --i) std::swap(order[i], order[Below(i + 1)]);
  return order;
}

Program MakeProgram(std::uint64_t seed, bool rendezvous, Mistake mistake) {
  return Maker(seed, rendezvous).Make(mistake);
}

}  // namespace peerax::stress
