#include "core/recorder/wires.hpp"

// The kernel's header, because the C library's tcp_info lacks the fields used here; the two headers exclude each other.
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>

#include "core/recorder/recorder.hpp"

namespace syntony {
namespace {

constexpr std::size_t kKept = 64;                // samples of a socket
constexpr std::int64_t kShortest = 900'000'000;  // nanoseconds between two of them

/// Drops every second sample of the older half, but never the first.
void thin(std::vector<WireSample>& samples) {
  std::size_t kept = 1;
  for (std::size_t i = 1; i < samples.size(); ++i) {
    if (i >= samples.size() / 2 || i % 2 == 0) samples[kept++] = samples[i];
  }
  samples.resize(kept);
}

}  // namespace

void Wires::Watched::end(bool lost) noexcept {
  if (wires_ == nullptr) return;
  const std::lock_guard lock(wires_->mutex_);
  Entry& entry = wires_->entries_[place_];
  entry.socket = -1;
  entry.wire.lost = lost;
}

Wires::Watched Wires::watch(std::uint32_t peer, std::uint32_t flow, int socket) {
  const std::lock_guard lock(mutex_);
  const auto before = std::ranges::find_if(
      entries_, [&](const Entry& one) { return one.wire.lost && one.wire.peer == peer && one.wire.flow == flow; });
  const auto place = static_cast<std::size_t>(before - entries_.begin());
  if (before == entries_.end()) entries_.emplace_back();
  entries_[place] = {{.peer = peer, .flow = flow, .samples = {}}, socket};
  return {shared_from_this(), place};
}

void Wires::sample() {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = nanoseconds_now();
  if (now - last_ < kShortest) return;
  last_ = now;
  for (Entry& entry : entries_) look(entry);
}

// Values that the kernel does not provide (because it is old or emulated) stay unknown; nothing depends on them.
void Wires::look(Entry& entry) {
  if (entry.socket < 0) return;
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (::getsockopt(entry.socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  if (length < offsetof(tcp_info, tcpi_sndbuf_limited)) return;
  std::vector<WireSample>& samples = entry.wire.samples;
  if (samples.size() == kKept) thin(samples);
  samples.push_back({.at = nanoseconds_now(),
                     .bytes = info.tcpi_bytes_acked,
                     .busy = info.tcpi_busy_time,
                     .held = info.tcpi_rwnd_limited,
                     .rate = info.tcpi_delivery_rate,
                     .round_trip = info.tcpi_rtt,
                     .resent = info.tcpi_total_retrans});
}

std::vector<Wires::State> Wires::states() const {
  const std::lock_guard lock(mutex_);
  std::vector<State> states;
  states.reserve(entries_.size());
  for (const Entry& entry : entries_) states.push_back({entry.wire.peer, entry.wire.lost});
  return states;
}

std::vector<Wires::Wire> Wires::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Wire> wires;
  wires.reserve(entries_.size());
  for (const Entry& entry : entries_) wires.push_back(entry.wire);
  return wires;
}

}  // namespace syntony
