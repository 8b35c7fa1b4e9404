// What a user reads when a run fails: the cause, both lines, and what every rank was doing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "session.h"

namespace peerax {

std::vector<std::string> DescribeMismatch(const Channel& channel, const std::string& sent, const std::string& received);
std::vector<std::string> DescribeBufferLimit(const Rank& rank, const Channel& channel, const Operation& operation,
                                             std::size_t leaf, std::int64_t buffered_bytes, std::int64_t limit_bytes);
std::vector<std::string> DescribeOtherKind(const Rank& first, const Operation& one, const Rank& second,
                                           const Operation& other);

// Reads a session whose mutex_ is held by the caller.
class Reporter {
 public:
  explicit Reporter(Session& session);

  Failure Render(const std::string& code, const std::vector<std::string>& sites,
                 const std::vector<std::string>& evidence) const;
  Failure Stuck() const;                    // nobody runs, and not everybody has ended
  bool Leftover(Failure* failure) const;    // everybody has ended; are there messages that nobody took?
  Failure TimedOut(const Rank& rank, double limit_s) const;
  std::vector<std::string> Grid() const;  // what each rank is doing, alike ones folded

 private:
  struct Wait {
    std::int32_t rank;
    std::int32_t on;  // the rank that must act
    const Operation* operation;
    enum { kMessage, kTaken, kCollective } what;
    std::int64_t tag;
    std::string type;
  };
  struct Unreceived {
    std::int32_t source;
    std::int32_t destination;
    std::int64_t tag;
    const Operation* operation;
    std::string type;
    std::int64_t count;
    std::int64_t received;  // of the same channel, before
    const Operation* last_received;
  };

  void AddWaits(const Operation& operation, const Rotation& rotation);  // its mutex held
  std::string Site(const Wait& wait) const;
  std::vector<std::int32_t> Missing(const Wait& wait, bool ended) const;
  std::string Other(const Wait& wait, bool relative) const;
  std::string Describe(const Wait& wait, bool relative = false, bool ended = false) const;
  std::string LastOf(const Rank& rank) const;
  std::string StateOf(std::int32_t rank, bool relative) const;
  std::vector<std::string> ShortGrid() const;
  std::vector<std::int32_t> InTheEnd(std::int32_t rank) const;
  std::vector<const Wait*> FindCycle() const;
  Failure OnEnded(const std::vector<const Wait*>& causes) const;
  std::vector<std::string> DescribeUnreceived() const;

  Session& session_;
  std::vector<Wait> waits_;
  std::vector<Unreceived> unreceived_;
};

}  // namespace peerax
