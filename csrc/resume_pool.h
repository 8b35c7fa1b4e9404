// Threads on which ranks go on after a wait. XLA continues the rank's program inline on the thread that completes
// its future, possibly into a collective that waits for other ranks; so there must always be one more thread.
#pragma once

#include <functional>

namespace peerax {

// Runs task on a thread of its own choice, never on the caller's: an idle one, else a new one.
void RunOnResumeThread(std::function<void()> task);

// Number of threads alive now, for tests and reports.
int ResumeThreadCount();

}  // namespace peerax
