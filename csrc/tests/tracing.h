// Traces that begin and end while programs run, and what must hold for whatever they record.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace peerax::stress {

class Tracing {
 public:
  Tracing();   // from now on
  ~Tracing();  // until now

  // Spans that were looked at so far.
  std::int64_t spans() const { return spans_.load(); }

 private:
  void Go();
  void Check();

  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> spans_{0};
  std::thread thread_;
};

}  // namespace peerax::stress
