// Random programs on many ranks and in many runs at once, right ones and wrong ones; what they receive and how they
// fail is known beforehand. Usage: channel_stress [SECONDS [SEED]], or channel_stress --seeds COUNT [SEED] for a few
// programs from each of so many seeds. Exits with 0 only if all was as expected.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "execution.h"
#include "faults.h"
#include "program.h"
#include "resume_pool.h"
#include "settings.h"
#include "tracing.h"
#include "watchdog.h"

namespace peerax::stress {
namespace {

constexpr int kDrivers = 4;
constexpr double kSlice_s = 1.0;
constexpr int kProgramsPerSeed = 2;  // of each driver
constexpr double kNoLimit_s = 600;
constexpr double kShortLimit_s = 0.002;

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Ends the process if the test as a whole is stuck.
void StartGuard(double limit_s) {
  std::thread([limit_s] {
    std::this_thread::sleep_for(std::chrono::duration<double>(limit_s));
    Die("still running after " + std::to_string(limit_s) + " s; " + std::to_string(OpenSessionCount()) +
        " sessions open, " + std::to_string(ResumeThreadCount()) + " resume threads");
  }).detach();
}

std::int64_t NextRun() {
  static std::atomic<std::int64_t> last{0};
  return ++last;
}

void WaitUntil(const char* what, double limit_s, const std::function<bool()>& holds) {
  const auto start = Clock::now();
  while (!holds()) {
    if (Since(start) > limit_s) Die(std::string("not even after a while: ") + what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Everything that runs leave behind must be gone.
void CheckQuiet() {
  WaitUntil("no session is open", 5, [] { return OpenSessionCount() == 0; });
  const std::int64_t left_bytes = TheSettings().buffered_bytes.load();
  if (left_bytes != 0) Die(std::to_string(left_bytes) + " bytes left in buffers");
}

// A run that failed may end without a rank that is late, and so without its messages.
void CheckTotals(const Tally& tally) {
  Totals& totals = TheTotals();
  std::lock_guard<std::mutex> lock(totals.mutex);
  const auto differ = [](std::int64_t total, std::int64_t all, std::int64_t failed) {
    return total > all || total < all - failed;
  };
  if (totals.runs != tally.runs || totals.failed_runs != tally.failed_runs ||
      differ(totals.messages, tally.messages, tally.failed_messages) ||
      differ(totals.size_bytes, tally.size_bytes, tally.failed_size_bytes)) {
    Die("totals differ: " + std::to_string(totals.runs) + " runs, " + std::to_string(totals.failed_runs) +
        " failed, " + std::to_string(totals.messages) + " messages, " + std::to_string(totals.size_bytes) + " bytes");
  }
}

struct Mode {
  const char* name;
  bool rendezvous;
  double limit_s;
  std::int64_t buffer_bytes;
};

// Drivers run programs at the same time, and each program several times, also at the same time.
Tally RunDrivers(const Mode& mode, std::uint64_t seed, const std::function<bool(int)>& more,
                 const std::function<Mistake(Random&)>& choose) {
  TheSettings().rendezvous = mode.rendezvous;
  TheSettings().timeout_s = mode.limit_s;
  TheSettings().buffer_limit_bytes = mode.buffer_bytes;
  const bool limits_are_short = mode.limit_s != kNoLimit_s;
  std::vector<Tally> tallies(kDrivers);
  std::vector<std::thread> drivers;
  for (int driver = 0; driver < kDrivers; ++driver) {
    drivers.emplace_back([&, driver] {
      Random random(seed * kDrivers + driver);
      for (int i = 0; more(i); ++i) {
        const Program program = MakeProgram(random.Next(), mode.rendezvous, choose(random));
        const int repeats = random.OneIn(4) ? 3 : 1;
        if (random.OneIn(4)) {
          Tally other;
          std::thread twin([&] { other = Execution(program, NextRun(), 1, limits_are_short).Run(); });
          tallies[driver].Add(Execution(program, NextRun(), repeats, limits_are_short).Run());
          twin.join();
          tallies[driver].Add(other);
        } else {
          tallies[driver].Add(Execution(program, NextRun(), repeats, limits_are_short).Run());
        }
      }
    });
  }
  for (std::thread& driver : drivers) driver.join();
  CheckQuiet();
  Tally tally;
  for (const Tally& part : tallies) tally.Add(part);
  return tally;
}

Mistake Any(Random& random) {
  if (!random.OneIn(3)) return Mistake::kNone;
  return kMistakes[random.Below(static_cast<int>(sizeof kMistakes / sizeof kMistakes[0]))];
}

void Print(const char* name, const Tally& tally) {
  std::printf("%-10s %8lld runs, %lld of them failed as expected, %lld steps, %lld messages, %.1f MiB\n", name,
              static_cast<long long>(tally.runs), static_cast<long long>(tally.failed_runs),
              static_cast<long long>(tally.steps), static_cast<long long>(tally.messages),
              static_cast<double>(tally.size_bytes) / (1 << 20));
}

constexpr std::int64_t kMost = INT64_MAX;
constexpr Mode kModes[] = {{"buffered", false, kNoLimit_s, kMost},
                           {"rendezvous", true, kNoLimit_s, kMost},
                           {"short", false, kShortLimit_s, kMost}};
constexpr int kModeCount = sizeof kModes / sizeof kModes[0];

// Nothing of all runs is left, and all of them are counted.
void CheckEnd(const Tally& total) {
  for (const auto& [code, count] : total.codes) std::printf("%s %lld times\n", code.c_str(), static_cast<long long>(count));
  CheckTotals(total);
  WaitUntil("no resume thread is left", 10, [] { return ResumeThreadCount() == 0; });
}

int RunFor(double seconds, std::uint64_t seed) {
  std::printf("channel_stress: %g s, seed %llu\n", seconds, static_cast<unsigned long long>(seed));
  const auto start = Clock::now();
  StartGuard(1.5 * seconds + 45);
  faults::Seed(seed);
  auto tracing = std::make_unique<Tracing>();
  std::vector<Tally> tallies(kModeCount);
  Tally total;
  for (int slice = 0; slice < kModeCount || Since(start) < seconds; ++slice) {
    const auto slice_start = Clock::now();
    const Mode& mode = kModes[slice % kModeCount];
    tallies[slice % kModeCount].Add(RunDrivers(
        mode, seed + slice, [&](int) { return Since(slice_start) < kSlice_s; }, Any));
  }
  for (int i = 0; i < kModeCount; ++i) {
    Print(kModes[i].name, tallies[i]);
    total.Add(tallies[i]);
  }
  // Mistakes that take their own settings.
  const auto once = [](int i) { return i < 4; };
  Tally tally = RunDrivers({"late", false, 0.05, kMost}, seed, [](int i) { return i < 1; },
                           [](Random&) { return Mistake::kLate; });
  Print("late", tally);
  total.Add(tally);
  tally = RunDrivers({"limit", false, kNoLimit_s, kSmallBufferBytes}, seed, once,
                     [](Random&) { return Mistake::kBufferLimit; });
  Print("limit", tally);
  total.Add(tally);
  const std::int64_t spans = tracing->spans();
  tracing.reset();
  if (spans == 0) Die("nothing was traced");
  CheckEnd(total);
  std::printf("channel_stress: all as expected, %lld spans traced, %.1f s\n", static_cast<long long>(spans), Since(start));
  return 0;
}

int RunSeeds(std::int64_t count, std::uint64_t seed) {
  std::printf("channel_stress: %lld seeds from %llu%s\n", static_cast<long long>(count),
              static_cast<unsigned long long>(seed), faults::kOn ? ", with faults" : "");
  const auto start = Clock::now();
  Tracing tracing;
  std::vector<Tally> tallies(kModeCount);
  Tally total;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t now = seed + static_cast<std::uint64_t>(i);
    faults::Seed(now);
    tallies[i % kModeCount].Add(RunDrivers(kModes[i % kModeCount], now, [](int k) { return k < kProgramsPerSeed; }, Any));
  }
  for (int i = 0; i < kModeCount; ++i) {
    Print(kModes[i].name, tallies[i]);
    total.Add(tallies[i]);
  }
  CheckEnd(total);
  std::printf("channel_stress: all as expected, %lld spans traced, %.1f s\n", static_cast<long long>(tracing.spans()),
              Since(start));
  return 0;
}

}  // namespace
}  // namespace peerax::stress

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "--seeds") == 0) {
    return peerax::stress::RunSeeds(std::atoll(argv[2]), argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  }
  const double seconds = argc > 1 ? std::atof(argv[1]) : 15;
  const std::uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  if (!(seconds > 0)) peerax::stress::Die("usage: channel_stress [SECONDS [SEED]] or channel_stress --seeds COUNT [SEED]");
  return peerax::stress::RunFor(seconds, seed);
}
