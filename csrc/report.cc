// See report.h.
#include "report.h"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <set>

#include "settings.h"

namespace peerax {
namespace {

// A report fits on a screen, however many ranks there are.
constexpr std::size_t kLines = 12;  // of one kind
constexpr std::size_t kSites = 8;
constexpr std::size_t kRanges = 8;  // of ranks in a line

std::string Name(std::int32_t rank) { return "rank " + std::to_string(rank); }

// ranks: in order. "rank 3", "ranks 0-2, 7".
std::string Names(const std::vector<std::int32_t>& ranks) {
  std::string text;
  std::size_t ranges = 0;
  for (std::size_t i = 0; i < ranks.size(); ++ranges) {
    if (ranges == kRanges) return "ranks " + text + " and " + std::to_string(ranks.size() - i) + " more";
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (last != i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

std::string Bytes(std::int64_t size_bytes) {
  char text[48];
  if (size_bytes < 1024 * 1024) {
    std::snprintf(text, sizeof text, "%lld bytes", static_cast<long long>(size_bytes));
  } else {
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(size_bytes) / (1024 * 1024));
  }
  return text;
}

// What tells messages on one channel apart: the tag, and whether they are tangents or cotangents.
std::string KindText(std::int64_t tag, const Operation& operation) {
  std::string text = tag == 0 ? "" : ", tag " + std::to_string(tag);
  if (!operation.path.empty()) text += operation.path.back() == 'c' ? ", its cotangent" : ", its tangent";
  return text;
}

// Which time it is that a rank comes by a line.
std::string Times(std::int64_t number) { return number < 2 ? "" : ", time " + std::to_string(number); }

const std::string& ReceiveSite(const Operation& operation) {
  return operation.kind == Kind::kExchange ? operation.receive_site : operation.site;
}

void Bound(std::vector<std::string>* lines) {
  if (lines->size() <= kLines) return;
  const std::size_t more = lines->size() - kLines + 1;
  lines->resize(kLines - 1);
  lines->push_back("and " + std::to_string(more) + " more");
}

void Append(std::vector<std::string>* lines, const std::vector<std::string>& others) {
  lines->insert(lines->end(), others.begin(), others.end());
}

}  // namespace

std::vector<std::string> DescribeMismatch(const Channel& channel, const std::string& sent,
                                          const std::string& received) {
  return {Name(channel.source) + " sent " + sent + " to " + Name(channel.destination) + ", which expected " + received +
          (channel.tag == 0 ? "" : " (tag " + std::to_string(channel.tag) + ")")};
}

std::vector<std::string> DescribeBufferLimit(const Rank& rank, const Channel& channel, const Operation& operation,
                                             std::size_t leaf, std::int64_t buffered_bytes, std::int64_t limit_bytes) {
  return {Name(rank.index) + " sends " + operation.types[leaf] + " to " + Name(channel.destination) +
              ", which has not received yet",
          "messages in buffers would take " + Bytes(buffered_bytes) + "; the limit is " + Bytes(limit_bytes) +
              " (PEERAX_BUFFER_BYTES)"};
}

std::vector<std::string> DescribeOtherKind(const Rank& first, const Operation& one, const Rank& second,
                                           const Operation& other) {
  const auto shown = [](const Operation& operation) {
    std::string text = operation.name + "(";
    for (std::size_t i = 0; i < operation.types.size(); ++i) text += (i == 0 ? "" : ", ") + operation.types[i];
    return text + ") at " + operation.site;
  };
  return {Name(first.index) + " calls " + shown(one) + ", and " + Name(second.index) + " calls " + shown(other)};
}

Reporter::Reporter(Session& session) : session_(session) {
  for (auto& [key, channel] : session.channels_) {
    std::lock_guard<std::mutex> lock(channel->mutex);
    for (const Receive& receive : channel->receives) {
      waits_.push_back({channel->destination, channel->source, receive.operation, Wait::kMessage, channel->tag,
                        receive.operation->types[receive.leaf]});
    }
    for (const Message& message : channel->messages) {
      const std::string& type = message.operation->types[message.leaf];
      if (message.lender != nullptr) {
        waits_.push_back({channel->source, channel->destination, message.operation, Wait::kTaken, channel->tag, type});
      }
      if (!unreceived_.empty() && unreceived_.back().operation == message.operation &&
          unreceived_.back().source == channel->source) {
        ++unreceived_.back().count;
      } else {
        unreceived_.push_back({channel->source, channel->destination, channel->tag, message.operation, type, 1,
                               channel->received, channel->last_received});
      }
    }
  }
  for (auto& [members, gathering] : session.gatherings_) {
    std::lock_guard<std::mutex> lock(gathering->mutex);
    std::set<std::int32_t> here;
    for (const Rank* rank : gathering->arrived) here.insert(rank->index);
    for (const Rank* rank : gathering->arrived) {
      for (std::int32_t other : members) {
        if (here.count(other) != 0) continue;
        waits_.push_back({rank->index, other, rank->operation.load(), Wait::kCollective, 0, ""});
      }
    }
  }
  for (auto& [key, rotation] : session.rotations_) {
    std::lock_guard<std::mutex> lock(rotation->mutex);
    AddWaits(*key.first, *rotation);
  }
  std::stable_sort(waits_.begin(), waits_.end(), [](const Wait& a, const Wait& b) { return a.rank < b.rank; });
}

// A rank waits for its neighbours that are missing; or else for the one beyond which, in the direction of its source
// first, somebody is missing. So those who wait never seem to wait for each other.
void Reporter::AddWaits(const Operation& operation, const Rotation& rotation) {
  const std::size_t size = rotation.members.size();
  const auto in_place = std::find(operation.in_place.begin(), operation.in_place.end(), true);
  const std::string& type = operation.types[in_place - operation.in_place.begin()];
  const auto missing = [&](std::size_t place) { return rotation.here[place % size] == nullptr; };
  for (std::size_t place = 0; place < size; ++place) {
    if (missing(place)) continue;
    bool before = false;
    for (std::size_t i = rotation.cycle ? place + 1 : 0; i < (rotation.cycle ? place + size : place); ++i) {
      before = before || missing(i);
    }
    const bool previous = (rotation.cycle || place != 0) && missing(place + size - 1);
    const bool next = (rotation.cycle || place + 1 != size) && missing(place + 1);
    const auto add = [&](std::size_t on, decltype(Wait::what) what) {
      waits_.push_back({rotation.members[place], rotation.members[on % size], &operation, what, operation.tag, type});
    };
    if (previous || (before && !next)) add(place + size - 1, Wait::kMessage);
    if (next || (!before && !previous)) add(place + 1, Wait::kTaken);
  }
}

std::string Reporter::Site(const Wait& wait) const {
  return wait.what == Wait::kMessage ? ReceiveSite(*wait.operation) : wait.operation->site;
}

// The ranks that this one waits for in a collective; those only that have ended, if asked.
std::vector<std::int32_t> Reporter::Missing(const Wait& wait, bool ended) const {
  std::vector<std::int32_t> missing;
  for (const Wait& other : waits_) {
    if (other.rank != wait.rank || other.what != Wait::kCollective) continue;
    if (!ended || session_.rank(other.on).ended.load(std::memory_order_acquire)) missing.push_back(other.on);
  }
  return missing;
}

// The rank that must act; relative: as seen from the one that waits, so that alike ones read alike.
std::string Reporter::Other(const Wait& wait, bool relative) const {
  if (relative && wait.on == wait.rank + 1) return "the rank after it";
  if (relative && wait.on == wait.rank - 1) return "the rank before it";
  return Name(wait.on);
}

std::string Reporter::Describe(const Wait& wait, bool relative, bool ended) const {
  const std::int64_t number = session_.rank(wait.rank).number.load(std::memory_order_relaxed);
  const bool is_precv = wait.what == Wait::kMessage && wait.operation->name == "psend";  // of an exchange
  const std::string place = (is_precv ? "precv" : wait.operation->name) + " (" + Site(wait) + Times(number) + ")";
  switch (wait.what) {
    case Wait::kMessage:
      return "waits in " + place + " for " + wait.type + " from " + Other(wait, relative) +
             KindText(wait.tag, *wait.operation);
    case Wait::kTaken:
      return "waits in " + place + " until " + Other(wait, relative) + " receives " + wait.type +
             KindText(wait.tag, *wait.operation);
    default:
      return "waits at " + place + " for " + Names(Missing(wait, ended));
  }
}

// What a rank took part in last.
std::string Reporter::LastOf(const Rank& rank) const {
  const Operation* last = rank.last.load(std::memory_order_relaxed);
  if (last == nullptr) return "";
  return ", after " + last->name + " (" + last->site + Times(rank.last_number.load(std::memory_order_relaxed)) + ")";
}

std::string Reporter::StateOf(std::int32_t rank, bool relative) const {
  const Wait* first = nullptr;
  std::size_t count = 0;
  for (const Wait& wait : waits_) {
    if (wait.rank != rank) continue;
    if (first == nullptr) first = &wait;
    if (wait.what != Wait::kCollective || &wait == first) ++count;
  }
  if (first != nullptr) {
    return Describe(*first, relative) + (count > 1 ? " and " + std::to_string(count - 1) + " more" : "");
  }
  const Rank& here = session_.rank(rank);
  return here.ended.load(std::memory_order_acquire) ? "finished" : "computes" + LastOf(here);
}

std::vector<std::string> Reporter::Grid() const {
  std::vector<std::string> lines;
  std::int32_t first = 0;
  while (first < session_.size()) {
    const std::string state = StateOf(first, false);
    std::vector<std::int32_t> ranks = {first};
    while (ranks.back() + 1 < session_.size() && StateOf(ranks.back() + 1, false) == state) {
      ranks.push_back(ranks.back() + 1);
    }
    lines.push_back(Names(ranks) + ": " + state);
    first = ranks.back() + 1;
  }
  return lines.size() <= kLines ? lines : ShortGrid();
}

// Alike ranks in one line wherever they are; those first that wait for nobody, since the others wait for them.
std::vector<std::string> Reporter::ShortGrid() const {
  std::vector<std::pair<std::string, std::vector<std::int32_t>>> states;
  std::set<std::int32_t> waiting;
  for (const Wait& wait : waits_) waiting.insert(wait.rank);
  for (const bool waits : {false, true}) {
    for (std::int32_t rank = 0; rank < session_.size(); ++rank) {
      if ((waiting.count(rank) != 0) != waits) continue;
      const std::string state = StateOf(rank, true);
      const auto alike = std::find_if(states.begin(), states.end(), [&](const auto& s) { return s.first == state; });
      if (alike == states.end()) {
        states.push_back({state, {rank}});
      } else {
        alike->second.push_back(rank);
      }
    }
  }
  std::vector<std::string> lines;
  for (const auto& [state, ranks] : states) lines.push_back(Names(ranks) + ": " + state);
  Bound(&lines);
  return lines;
}

Failure Reporter::Render(const std::string& code, const std::vector<std::string>& sites,
                         const std::vector<std::string>& evidence) const {
  const auto known = TheCodeTexts().find(code);
  std::string text = code;
  if (known != TheCodeTexts().end()) text += ": " + known->second.title;
  std::set<std::string> seen;
  for (const std::string& site : sites) {
    if (!site.empty() && seen.insert(site).second && seen.size() <= kSites) text += "\n  --> " + site;
  }
  if (seen.size() > kSites) text += "\n  and " + std::to_string(seen.size() - kSites) + " more lines";
  for (const std::string& line : evidence) text += "\n  " + line;
  for (const std::string& line : Grid()) text += "\n    " + line;
  if (known != TheCodeTexts().end()) text += "\n  help: " + known->second.help;
  text += "\n  more: peerax explain " + code;
  return {code, text};
}

// The shortest cycle of ranks that wait for each other, or nothing.
std::vector<const Reporter::Wait*> Reporter::FindCycle() const {
  std::vector<std::vector<const Wait*>> from(session_.size());
  for (const Wait& wait : waits_) from[wait.rank].push_back(&wait);
  std::vector<const Wait*> shortest;
  for (std::int32_t start = 0; start < session_.size(); ++start) {
    std::vector<const Wait*> arrived_by(session_.size(), nullptr);
    std::deque<std::int32_t> queue = {start};
    bool closed = false;
    while (!queue.empty() && !closed) {
      const std::int32_t rank = queue.front();
      queue.pop_front();
      for (const Wait* wait : from[rank]) {
        if (arrived_by[wait->on] != nullptr) continue;
        arrived_by[wait->on] = wait;
        if (wait->on == start) {
          closed = true;
          break;
        }
        queue.push_back(wait->on);
      }
    }
    if (!closed) continue;
    std::vector<const Wait*> cycle;
    std::int32_t rank = start;
    do {
      cycle.push_back(arrived_by[rank]);
      rank = arrived_by[rank]->rank;
    } while (rank != start);
    std::reverse(cycle.begin(), cycle.end());
    if (shortest.empty() || cycle.size() < shortest.size()) shortest = std::move(cycle);
  }
  return shortest;
}

std::vector<std::string> Reporter::DescribeUnreceived() const {
  std::vector<std::string> lines;
  for (const Unreceived& message : unreceived_) {
    lines.push_back(Name(message.source) + " sent " + message.type + " to " + Name(message.destination) +
                    KindText(message.tag, *message.operation) + " in " + message.operation->name + " (" + message.operation->site + "), and nobody received it" +
                    (message.count > 1 ? " (" + std::to_string(message.count) + " messages)" : ""));
    if (message.received == 0) continue;
    const std::int64_t received = message.received;
    lines.back() += "; it had received " + std::to_string(received) + (received == 1 ? " message" : " messages") +
                    " before, the last in precv (" + ReceiveSite(*message.last_received) + ")";
  }
  Bound(&lines);
  return lines;
}

Failure Reporter::OnEnded(const std::vector<const Wait*>& causes) const {
  if (causes.empty()) return Render("PX302", {}, {});
  const Wait& cause = *causes.front();
  std::vector<std::string> sites = {Site(cause)};
  std::vector<std::string> evidence;
  std::vector<std::pair<std::string, std::vector<std::int32_t>>> alike;
  std::string code = cause.what == Wait::kMessage ? "PX202" : cause.what == Wait::kTaken ? "PX201" : "PX209";
  for (const Wait* wait : causes) {
    const char* missed = wait->what == Wait::kMessage ? ", which finished without sending it"
                         : wait->what == Wait::kTaken ? ", which finished without receiving it"
                                                      : ", which finished without joining it";
    const std::string state = Describe(*wait, false, true) + missed;
    if (alike.empty() || alike.back().first != state) {
      alike.push_back({state, {wait->rank}});
    } else if (alike.back().second.back() != wait->rank) {
      alike.back().second.push_back(wait->rank);
    }
    for (const Unreceived& message : unreceived_) {
      if (wait->what == Wait::kMessage && message.source == wait->on && message.destination == wait->rank &&
          message.operation->kind == Kind::kSend && message.tag != wait->tag) {
        code = "PX205";
        sites.push_back(message.operation->site);
      }
    }
  }
  for (const auto& [state, ranks] : alike) {
    evidence.push_back(Names(ranks) + (ranks.size() == 1 ? " " : ": ") + state);
  }
  // The values matched, so it is differentiation that lost one end.
  if (cause.what != Wait::kCollective && !cause.operation->path.empty()) code = "PX214";
  if (cause.what == Wait::kMessage) {
    for (const Unreceived& message : unreceived_) sites.push_back(message.operation->site);
    Append(&evidence, DescribeUnreceived());
  }
  Bound(&evidence);
  return Render(code, sites, evidence);
}

Failure Reporter::Stuck() const {
  const std::vector<const Wait*> cycle = FindCycle();
  if (cycle.empty()) {
    std::vector<const Wait*> causes;
    for (const Wait& wait : waits_) {
      if (session_.rank(wait.on).ended.load(std::memory_order_acquire)) causes.push_back(&wait);
    }
    return OnEnded(causes);
  }
  bool collectives_only = true;
  std::vector<std::string> sites;
  std::vector<std::string> evidence = {"these ranks wait for each other:"};
  for (const Wait* wait : cycle) {
    collectives_only = collectives_only && wait->what == Wait::kCollective;
    sites.push_back(Site(*wait));
    evidence.push_back("  " + Name(wait->rank) + " " + Describe(*wait));
  }
  Bound(&evidence);
  return Render(collectives_only ? "PX209" : "PX302", sites, evidence);
}

bool Reporter::Leftover(Failure* failure) const {
  if (unreceived_.empty()) return false;
  std::vector<std::string> sites;
  for (const Unreceived& message : unreceived_) sites.push_back(message.operation->site);
  std::string code = "PX303";
  for (const Unreceived& message : unreceived_) {
    if (message.received == 0) code = "PX201";
  }
  for (const Unreceived& message : unreceived_) {
    if (message.received != 0) sites.push_back(ReceiveSite(*message.last_received));
  }
  // The values matched, so it is differentiation that lost one end.
  if (!unreceived_.front().operation->path.empty()) code = "PX214";
  *failure = Render(code, sites, DescribeUnreceived());
  return true;
}

// The ranks that keep this one waiting, by others that wait for them, and wait for nobody themselves.
std::vector<std::int32_t> Reporter::InTheEnd(std::int32_t rank) const {
  std::set<std::int32_t> waiting, direct;
  for (const Wait& wait : waits_) {
    waiting.insert(wait.rank);
    if (wait.rank == rank) direct.insert(wait.on);
  }
  std::vector<std::int32_t> found, to_follow = {rank};
  std::set<std::int32_t> seen = {rank};
  while (!to_follow.empty()) {
    const std::int32_t now = to_follow.back();
    to_follow.pop_back();
    for (const Wait& wait : waits_) {
      if (wait.rank != now || !seen.insert(wait.on).second) continue;
      to_follow.push_back(wait.on);
      if (waiting.count(wait.on) == 0 && direct.count(wait.on) == 0) found.push_back(wait.on);
    }
  }
  return found;
}

Failure Reporter::TimedOut(const Rank& rank, double limit_s) const {
  std::vector<std::string> sites;
  std::vector<std::string> evidence;
  for (const Wait& wait : waits_) {
    if (wait.rank != rank.index) continue;
    sites.push_back(Site(wait));
    evidence.push_back(Name(rank.index) + " " + Describe(wait) + " since more than " + Seconds(limit_s) +
                       " (PEERAX_TIMEOUT_S)");
  }
  if (evidence.empty()) {  // it waits for the others at the end of the body
    evidence.push_back(Name(rank.index) + " finished and waits for the others since more than " + Seconds(limit_s) +
                       " (PEERAX_TIMEOUT_S)");
  }
  for (std::int32_t other : InTheEnd(rank.index)) {
    evidence.push_back("which in the end waits for " + Name(other) + ": " + StateOf(other, false));
  }
  Bound(&evidence);
  return Render("PX301", sites, evidence);
}

}  // namespace peerax
