// The counters as Prometheus text (recorder_dump.hpp).
#include <array>
#include <functional>
#include <utility>

#include "core/recorder/recorder_dump.hpp"

namespace syntony {
namespace {

std::string label(std::string_view text) {
  std::string escaped;
  for (const char character : text) {
    if (character == '\n')
      escaped += "\\n";
    else
      escaped += character == '"' || character == '\\' ? std::string("\\") + character : std::string(1, character);
  }
  return '"' + escaped + '"';
}

std::string seconds(std::int64_t nanoseconds) {
  std::string fraction = std::to_string(nanoseconds % 1'000'000'000);
  return std::to_string(nanoseconds / 1'000'000'000) + "." + std::string(9 - fraction.size(), '0') + fraction;
}

std::string labels(const Recorder& recorder) {
  return "group=" + label(recorder.identity().group) + ",rank=\"" + std::to_string(recorder.identity().rank) + '"';
}

/// For every socket to another rank. Readers compute rates themselves: bytes over busy seconds is what the wire
/// delivers.
std::string wires_text(const Recorders& recorders) {
  struct Metric {
    const char* name;
    const char* type;
    const char* help;
    std::function<std::string(const WireSample&)> value;
  };
  const auto micro = [](std::uint64_t microseconds) { return seconds(static_cast<std::int64_t>(microseconds) * 1000); };
  const std::array<Metric, 5> kMetrics{{
      {"wire_bytes_total", "counter", "Bytes that the peer's kernel has acknowledged.",
       [](const WireSample& wire) { return std::to_string(wire.bytes); }},
      {"wire_busy_seconds_total", "counter", "Time in which something was on its way or waited for the wire.",
       [&](const WireSample& wire) { return micro(wire.busy); }},
      {"wire_held_seconds_total", "counter", "Of that, time in which the receiver had no room.",
       [&](const WireSample& wire) { return micro(wire.held); }},
      {"wire_resent_packets_total", "counter", "Packets that were sent again.",
       [](const WireSample& wire) { return std::to_string(wire.resent); }},
      {"wire_round_trip_seconds", "gauge", "The kernel's smoothed round trip, waiting in queues included.",
       [&](const WireSample& wire) { return micro(wire.round_trip); }},
  }};
  std::vector<std::pair<std::string, WireSample>> last;
  for (const std::shared_ptr<Recorder>& recorder : recorders) {
    for (const Wires::Wire& wire : wires_of(*recorder)) {
      if (wire.samples.empty()) continue;
      last.emplace_back(
          labels(*recorder) + ",peer=\"" + std::to_string(wire.peer) + "\",flow=\"" + std::to_string(wire.flow) + '"',
          wire.samples.back());
    }
  }
  std::string text;
  for (const Metric& metric : kMetrics) {
    const std::string name = std::string("syntony_") + metric.name;
    text += "# HELP " + name + " " + metric.help + "\n# TYPE " + name + " " + metric.type + "\n";
    for (const auto& [of, sample] : last) text += name + "{" + of + "} " + metric.value(sample) + "\n";
  }
  return text;
}

}  // namespace

std::string counters_text(const Recorders& recorders) {
  struct Metric {
    const char* name;
    const char* help;
    std::function<std::string(const Recorder::Counter&)> value;
  };
  const std::array<Metric, 5> kMetrics{{
      {"operations_total", "Operations that have ended.", [](const auto& c) { return std::to_string(c.operations); }},
      {"failures_total", "Operations that have ended with an error.",
       [](const auto& c) { return std::to_string(c.failures); }},
      {"bytes_total", "The larger of input and output, of operations that succeeded.",
       [](const auto& c) { return std::to_string(c.bytes); }},
      {"queued_seconds_total", "Time from the call until something moved.",
       [](const auto& c) { return seconds(c.queued_nanoseconds); }},
      {"running_seconds_total", "Time from there to the end: moving, and waiting for other ranks.",
       [](const auto& c) { return seconds(c.running_nanoseconds); }},
  }};
  std::string text;
  for (const Metric& metric : kMetrics) {
    const std::string name = std::string("syntony_") + metric.name;
    text += "# HELP " + name + " " + metric.help + "\n# TYPE " + name + " counter\n";
    for (const std::shared_ptr<Recorder>& recorder : recorders) {
      const auto counters = recorder->counters();
      for (std::uint8_t kind = 0; kind < Recorder::kKinds; ++kind) {
        if (counters[kind].operations == 0) continue;
        text += name + "{" + labels(*recorder) + ",collective=\"" + std::string(name_of_kind(kind)) + "\"} " +
                metric.value(counters[kind]) + "\n";
      }
    }
  }
  text +=
      "# HELP syntony_sent_bytes_total Bytes sent to each peer in frames; algorithm shared sends none.\n"
      "# TYPE syntony_sent_bytes_total counter\n";
  for (const std::shared_ptr<Recorder>& recorder : recorders) {
    const auto sent = recorder->sent();
    for (std::size_t peer = 0; peer < sent.size(); ++peer) {
      const std::uint64_t bytes = sent[peer].load(std::memory_order_relaxed);
      if (bytes == 0) continue;
      text += "syntony_sent_bytes_total{" + labels(*recorder) + ",peer=\"" + std::to_string(peer) + "\"} " +
              std::to_string(bytes) + "\n";
    }
  }
  text += wires_text(recorders);
  text +=
      "# HELP syntony_unrecorded_total Operations for which the recorder had no room.\n"
      "# TYPE syntony_unrecorded_total counter\n";
  for (const std::shared_ptr<Recorder>& recorder : recorders) {
    text += "syntony_unrecorded_total{" + labels(*recorder) + "} " + std::to_string(recorder->unrecorded()) + "\n";
  }
  return text;
}

std::string counters_text() { return counters_text(all_recorders()); }

}  // namespace syntony
