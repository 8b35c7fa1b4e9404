// See resume_pool.h.
#include "resume_pool.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "faults.h"

namespace peerax {
namespace {

constexpr std::chrono::seconds kIdleLimit(5);  // an idle thread ends after this long

struct Worker {
  std::condition_variable wake;
  std::function<void()> task;  // guarded by Pool::mutex; non-empty: taken off the idle list
};

struct Pool {
  std::mutex mutex;
  std::vector<Worker*> idle;  // last in, first out: the warmest thread goes on
  int alive = 0;
};

// Never destroyed: threads may outlive static destruction.
Pool& ThePool() {
  static Pool* pool = new Pool;
  return *pool;
}

void WorkerLoop(std::function<void()> task) {
  Pool& pool = ThePool();
  Worker self;
  while (true) {
    faults::Delay();
    task();
    task = nullptr;
    std::unique_lock<std::mutex> lock(pool.mutex);
    pool.idle.push_back(&self);
    if (!self.wake.wait_for(lock, kIdleLimit, [&] { return static_cast<bool>(self.task); })) {
      for (auto it = pool.idle.begin(); it != pool.idle.end(); ++it) {
        if (*it == &self) {
          pool.idle.erase(it);
          break;
        }
      }
      --pool.alive;
      return;
    }
    task = std::move(self.task);
    self.task = nullptr;
  }
}

}  // namespace

void RunOnResumeThread(std::function<void()> task) {
  Pool& pool = ThePool();
  {
    std::lock_guard<std::mutex> lock(pool.mutex);
    if (!pool.idle.empty()) {
      std::swap(pool.idle[faults::Pick(pool.idle.size())], pool.idle.back());
      Worker* worker = pool.idle.back();
      pool.idle.pop_back();
      worker->task = std::move(task);
      // Notified under the lock: the worker may end, and its condition variable with it, once it is released.
      worker->wake.notify_one();
      return;
    }
    ++pool.alive;
  }
  std::thread(WorkerLoop, std::move(task)).detach();
}

int ResumeThreadCount() {
  Pool& pool = ThePool();
  std::lock_guard<std::mutex> lock(pool.mutex);
  return pool.alive;
}

}  // namespace peerax
