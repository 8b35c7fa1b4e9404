// See tracing.h.
#include "tracing.h"

#include <chrono>
#include <string>

#include "execution.h"
#include "program.h"
#include "trace.h"

namespace peerax::stress {

Tracing::Tracing() : thread_([this] { Go(); }) {}

Tracing::~Tracing() {
  stop_ = true;
  thread_.join();
}

void Tracing::Go() {
  Random random(1);
  while (!stop_) {
    // From so few that each rank keeps one span and each run displaces the one before, to all.
    TheTrace().Start(random.OneIn(3) ? 4 : random.OneIn(2) ? 200 : 100'000);
    std::this_thread::sleep_for(std::chrono::microseconds(random.Below(random.OneIn(2) ? 500'000 : 20'000)));
    if (random.OneIn(4)) continue;  // begun anew, as after one that was given up
    TheTrace().Stop();
    Check();
  }
  TheTrace().Stop();
  Check();
}

void Tracing::Check() {
  const auto operations = TheTrace().TakeOperations();
  const auto runs = TheTrace().TakeRuns();
  for (const auto& run : runs) {
    for (const TracedRank& rank : run->ranks) {
      const bool is_one_run = run->most_spans != 0;  // totals are of several, some of which were at the same time
      if (is_one_run && rank.inside_ns != rank.end_ns - rank.begin_ns) Die("a rank was not in a run from begin to end");
      if (rank.waiting_ns < 0 || rank.moving_ns < 0) Die("a rank has a negative time");
      if (rank.waiting_ns + rank.moving_ns > rank.inside_ns) Die("a rank was longer in operations than in runs");
      if (rank.spans.size() > run->most_spans) Die("a rank has more spans than are kept");
      if (static_cast<std::int64_t>(rank.spans.size()) > rank.operations) Die("a rank has spans that nobody counted");
      for (const TracedSpan& span : rank.spans) {
        ++spans_;
        const std::string name = "span " + std::to_string(span.number) + " of operation " + std::to_string(span.operation);
        if (operations.count(span.operation) == 0) Die(name + ": nobody knows the operation");
        if (span.number < 1 || span.sent < 0 || span.received < 0) Die(name + ": wrong numbers");
        if (span.start_ns > span.matched_ns || span.matched_ns > span.end_ns) Die(name + ": its times are out of order");
        if (span.start_ns < rank.begin_ns || span.end_ns > rank.end_ns) Die(name + ": outside of its run");
      }
    }
  }
}

}  // namespace peerax::stress
