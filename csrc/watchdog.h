// All sessions that are open, by the execution they belong to, and the thread that looks for waits over the limit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "session.h"

namespace peerax {

// The session that a rank enters in this execution: the first rank makes it, the others join. One (run, body) is
// open at most once at a time, since the end of a session is a barrier. The session lives until the rank has ended.
Session* JoinSession(std::int64_t run, const void* body, std::int32_t rank, std::int32_t device, std::int32_t size,
                     std::int32_t devices);

// Whether runs in progress go on to their ends without waiting, those that open later included.
void InterruptSessions(bool on);

// When no run is in progress: forgets sessions that some rank never left, since XLA ended it by an error.
void AbandonSessions();

// What the ranks of all runs are doing, a line each.
std::vector<std::string> DescribeSessions();

int OpenSessionCount();

}  // namespace peerax
