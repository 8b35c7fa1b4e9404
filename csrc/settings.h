// Process-wide settings and totals. Written by the Python side, read by sessions.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace peerax {

struct Settings {
  std::atomic<double> timeout_s{60.0};           // wait limit; infinity allowed
  std::atomic<bool> rendezvous{false};           // separate sends wait for their receive
  std::atomic<std::int64_t> buffer_limit_bytes{INT64_MAX};  // bytes of separate sends in flight

  std::atomic<std::int64_t> buffered_bytes{0};   // now
};

// Title and one-line help of a diagnostic code, given by the registry in Python so that they are written once.
struct CodeText {
  std::string title;
  std::string help;
};

struct Totals {
  std::mutex mutex;
  std::int64_t runs = 0;
  std::int64_t failed_runs = 0;
  std::int64_t ranks = 0;  // largest run so far
  std::int64_t messages = 0;
  std::int64_t size_bytes = 0;
  double longest_wait_s = 0;
  std::string longest_wait_site;
  std::string failure;  // the report of the first failure that nobody has taken yet
};

// None of these is ever destroyed: detached threads use them.
Settings& TheSettings();
Totals& TheTotals();
std::map<std::string, CodeText>& TheCodeTexts();  // filled once, before the first run

}  // namespace peerax
