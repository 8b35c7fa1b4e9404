// Python bindings: handlers as capsules, settings, totals. No logic.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>

#include "handlers.h"
#include "resume_pool.h"
#include "settings.h"
#include "trace.h"
#include "watchdog.h"

namespace nb = nanobind;

namespace peerax {
namespace {

nb::dict Targets() {
  nb::dict targets;
  for (int i = 0; i < kHandlerCount; ++i) {
    nb::dict stages;
    if (kHandlers[i].instantiate != nullptr) {
      stages["instantiate"] = nb::capsule(reinterpret_cast<void*>(kHandlers[i].instantiate));
    }
    stages["execute"] = nb::capsule(reinterpret_cast<void*>(kHandlers[i].execute));
    targets[kHandlers[i].target] = stages;
  }
  return targets;
}

nb::dict Types() {
  nb::dict types;
  for (int i = 0; i < kTypeCount; ++i) {
    nb::dict entry;
    entry["type_id"] = nb::capsule(static_cast<void*>(kTypes[i].id));
    entry["type_info"] = nb::capsule(const_cast<XLA_FFI_TypeInfo*>(kTypes[i].info));
    types[kTypes[i].name] = entry;
  }
  return types;
}

nb::dict Statistics() {
  Totals& totals = TheTotals();
  std::lock_guard<std::mutex> lock(totals.mutex);
  nb::dict result;
  result["runs"] = totals.runs;
  result["failed_runs"] = totals.failed_runs;
  result["ranks"] = totals.ranks;
  result["messages"] = totals.messages;
  result["bytes"] = totals.size_bytes;
  result["longest_wait_s"] = totals.longest_wait_s;
  result["longest_wait_site"] = totals.longest_wait_site;
  return result;
}

std::string TakeFailure() {
  Totals& totals = TheTotals();
  std::lock_guard<std::mutex> lock(totals.mutex);
  return std::exchange(totals.failure, std::string());
}

// What was recorded since start_trace, as it lies in memory; runtime/_trace.py knows the layout.
nb::dict TakeTrace() {
  nb::dict operations;
  for (const auto& [id, operation] : TheTrace().TakeOperations()) {
    nb::dict entry;
    entry["kind"] = static_cast<int>(operation.kind);
    entry["name"] = operation.name;
    entry["site"] = operation.site;
    entry["tag"] = operation.tag;
    entry["pair"] = operation.pair;
    entry["path"] = operation.path;
    entry["destination"] = operation.destination;
    entry["source"] = operation.source;
    operations[nb::int_(id)] = entry;
  }
  nb::list runs;
  for (const auto& run : TheTrace().TakeRuns()) {
    nb::list ranks;
    for (const TracedRank& rank : run->ranks) {
      const auto* spans = reinterpret_cast<const char*>(rank.spans.data());
      ranks.append(nb::make_tuple(rank.begin_ns, rank.end_ns, rank.inside_ns, rank.waiting_ns, rank.moving_ns,
                                  rank.operations, nb::bytes(spans, rank.spans.size() * sizeof(TracedSpan))));
    }
    runs.append(ranks);
  }
  nb::dict result;
  result["operations"] = operations;
  result["runs"] = runs;
  return result;
}

void SetCodeText(const std::string& code, const std::string& title, const std::string& help) {
  TheCodeTexts()[code] = {title, help};
}

}  // namespace
}  // namespace peerax

NB_MODULE(_extension, m) {
  m.def("targets", &peerax::Targets, "FFI targets: name -> stage -> capsule.");
  m.def("types", &peerax::Types, "FFI state types: name -> type_id and type_info capsules.");
  m.def("statistics", &peerax::Statistics, "Totals since the process started.");
  m.def("set_code_text", &peerax::SetCodeText, nb::arg("code"), nb::arg("title"), nb::arg("help"));
  m.def("take_failure", &peerax::TakeFailure, "The report of the first failure since the last call, or an empty text.");
  m.def("interrupt_sessions", &peerax::InterruptSessions, "Lets runs in progress go on to their ends without waiting.");
  m.def("abandon_sessions", &peerax::AbandonSessions, "Forgets what runs that are over have left open.");
  m.def("set_timeout_s", [](double seconds) { peerax::TheSettings().timeout_s = seconds; });
  m.def("set_rendezvous", [](bool on) { peerax::TheSettings().rendezvous = on; });
  m.def("set_buffer_limit_bytes", [](std::int64_t limit) { peerax::TheSettings().buffer_limit_bytes = limit; });
  m.def("buffered_bytes", [] { return peerax::TheSettings().buffered_bytes.load(); });
  m.def("start_trace", [](std::size_t most_spans) { peerax::TheTrace().Start(most_spans); }, nb::arg("most_spans"));
  m.def("stop_trace", [] { peerax::TheTrace().Stop(); });
  m.def("take_trace", &peerax::TakeTrace, "What was recorded since start_trace.");
  m.def("resume_threads", &peerax::ResumeThreadCount);
  m.def("describe_sessions", &peerax::DescribeSessions, "What the ranks of all runs are doing now, a line each.");
  m.def("open_sessions", &peerax::OpenSessionCount);
}
