// See watchdog.h.
#include "watchdog.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "settings.h"

namespace peerax {
namespace {

constexpr double kLookAtLeastEvery_s = 1.0;  // a limit that is lowered while it runs is seen this soon

struct Open {
  std::shared_ptr<Session> session;
  std::int32_t joined = 0;
};

struct Watched {
  std::int64_t run;
  std::weak_ptr<Session> session;
};

struct Registry {
  std::mutex mutex;
  std::condition_variable changed;
  // A session is listed until all ranks have joined it; after that it lives as long as a rank uses it.
  std::map<std::pair<std::int64_t, const void*>, Open> joining;
  std::vector<Watched> watched;
  bool started = false;
  bool interrupted = false;    // sessions that open now fail at once
  std::set<std::int64_t> given_up;  // so do those of these runs, of which some rank may still come
  std::int64_t last_run = 0;        // that a rank has entered; one runs at a time
};

// Never destroyed: the watchdog's thread uses it.
Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

void Watch() {
  Registry& registry = TheRegistry();
  std::vector<std::shared_ptr<Session>> sessions;
  double next_s = kLookAtLeastEvery_s;
  while (true) {
    {
      std::unique_lock<std::mutex> lock(registry.mutex);
      registry.changed.wait(lock, [&] { return !registry.watched.empty(); });
      registry.changed.wait_for(lock, std::chrono::duration<double>(next_s), [] { return false; });
      auto& watched = registry.watched;
      watched.erase(std::remove_if(watched.begin(), watched.end(), [](const auto& w) { return w.session.expired(); }),
                    watched.end());
      for (const auto& each : watched) {
        if (auto session = each.session.lock()) sessions.push_back(std::move(session));
      }
    }
    next_s = kLookAtLeastEvery_s;
    const double limit_s = TheSettings().timeout_s.load(std::memory_order_relaxed);
    for (const auto& session : sessions) {
      next_s = std::min(next_s, std::max(0.01, session->CheckWaits(limit_s, NowNs())));
    }
    sessions.clear();
  }
}

// registry.mutex held.
void StartWatching(Registry& registry, std::int64_t run, const std::shared_ptr<Session>& session) {
  auto& watched = registry.watched;
  // Dead entries are dropped here too, or 1,000 short runs would pile up between two looks.
  if (watched.size() >= 16) {
    watched.erase(std::remove_if(watched.begin(), watched.end(), [](const auto& w) { return w.session.expired(); }),
                  watched.end());
  }
  const bool first = watched.empty();
  watched.push_back({run, session});
  if (!registry.started) {
    registry.started = true;
    std::thread(Watch).detach();
  } else if (first) {
    registry.changed.notify_one();
  }
}

}  // namespace

Session* JoinSession(std::int64_t run, const void* body, std::int32_t rank, std::int32_t device, std::int32_t size,
                     std::int32_t devices) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.last_run = run;
  const auto key = std::make_pair(run, body);
  Open& open = registry.joining[key];
  if (open.session == nullptr) {
    open.session = std::make_shared<Session>(size, devices);
    StartWatching(registry, run, open.session);
    if (registry.interrupted || registry.given_up.count(run) != 0) open.session->Interrupt();
  }
  const std::shared_ptr<Session> session = open.session;
  session->rank(rank).keep = session;
  session->PlaceRank(rank, device);
  if (++open.joined == size) registry.joining.erase(key);
  return session.get();
}

void InterruptSessions(bool on) {
  Registry& registry = TheRegistry();
  std::vector<std::shared_ptr<Session>> sessions;  // destroyed after the lock is released
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.interrupted = on;
  if (!on) return;
  registry.given_up.insert(registry.last_run);
  for (const auto& watched : registry.watched) {
    auto session = watched.session.lock();
    if (session == nullptr) continue;
    registry.given_up.insert(watched.run);
    sessions.push_back(std::move(session));
  }
  for (const auto& session : sessions) session->Interrupt();
}

void AbandonSessions() {
  Registry& registry = TheRegistry();
  std::vector<std::shared_ptr<Session>> sessions;  // destroyed after the lock is released
  std::lock_guard<std::mutex> lock(registry.mutex);
  for (const auto& watched : registry.watched) {
    if (auto session = watched.session.lock()) sessions.push_back(std::move(session));
  }
  for (auto& [key, open] : registry.joining) sessions.push_back(std::move(open.session));
  registry.joining.clear();
  for (const auto& session : sessions) session->Abandon();
}

std::vector<std::string> DescribeSessions() {
  Registry& registry = TheRegistry();
  std::vector<std::shared_ptr<Session>> sessions;  // destroyed after the lock is released
  std::vector<std::string> lines;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    for (const auto& watched : registry.watched) {
      if (auto session = watched.session.lock()) sessions.push_back(std::move(session));
    }
  }
  for (const auto& session : sessions) {
    const std::vector<std::string> more = session->Describe();
    lines.insert(lines.end(), more.begin(), more.end());
  }
  return lines;
}

int OpenSessionCount() {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  int count = 0;
  for (const auto& watched : registry.watched) count += watched.session.expired() ? 0 : 1;
  return count;
}

}  // namespace peerax
