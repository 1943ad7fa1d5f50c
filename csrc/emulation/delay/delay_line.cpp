#include "emulation/delay/delay_line.hpp"

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/process/host.hpp"
#include "core/process/unique_fd.hpp"

namespace syntony {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargestPacket = 65536;
constexpr std::uint64_t kStop = ~std::uint64_t{0};
constexpr std::uint64_t kTimer = kStop - 1;
/// Packets read from one device before the others get their turn.
constexpr int kBatch = 32;

Error failed(std::string_view what) { return Error(Error::Kind::system, system_sentence(what)); }

struct Packet {
  Clock::time_point due;
  std::vector<std::byte> bytes;
};

/// One direction of one wire. Its delay is constant, so packets become due in order of arrival.
struct Lane {
  int from = -1;
  int to = -1;
  std::chrono::nanoseconds delay{};
  std::bernoulli_distribution lost;
  std::mt19937_64 chance;
  std::deque<Packet> waiting;
};

class Line {
 public:
  Line(std::span<const DelayedWire> wires, int stop)
      : epoll_(epoll_create1(EPOLL_CLOEXEC)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (!epoll_) throw failed("cannot make an epoll set");
    if (!timer_) throw failed("cannot make a timer");
    for (const DelayedWire& wire : wires) {
      for (const auto& [from, to] : {std::pair(wire.one, wire.other), std::pair(wire.other, wire.one)}) {
        lanes_.push_back(
            {from, to, wire.delay, std::bernoulli_distribution(wire.loss), std::mt19937_64(lanes_.size() + 1), {}});
      }
    }
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) watch(lanes_[lane].from, lane);
    watch(timer_.get(), kTimer);
    watch(stop, kStop);
  }

  DelayFigures run() {
    while (serve_events()) {
      const Clock::time_point next = write_due();
      if (next != armed_) arm(next);
    }
    if (figures_.packets > 0) {
      figures_.mean_lateness = total_lateness_ / static_cast<std::int64_t>(figures_.packets);
    }
    return figures_;
  }

 private:
  void watch(int descriptor, std::uint64_t name) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = name;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) throw failed("cannot watch a wire");
  }

  /// Waits for packets or until one is due. False when it should stop.
  bool serve_events() {
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno != EINTR) throw failed("cannot wait for packets");
    for (int i = 0; i < count; ++i) {
      const std::uint64_t name = events[static_cast<std::size_t>(i)].data.u64;
      if (name == kStop) return false;
      if (name == kTimer) {
        std::uint64_t expirations = 0;
        [[maybe_unused]] const ssize_t n = read(timer_.get(), &expirations, sizeof(expirations));
        armed_ = Clock::time_point::max();
      } else {
        take(lanes_[name]);
      }
    }
    return true;
  }

  void take(Lane& lane) {
    for (int i = 0; i < kBatch; ++i) {
      const ssize_t n = read(lane.from, room_.data(), room_.size());
      if (n <= 0) return;  // nothing to read, or the device is down and nothing will come
      if (lane.lost.p() > 0 && lane.lost(lane.chance)) {
        ++figures_.dropped;
        continue;
      }
      lane.waiting.push_back({Clock::now() + lane.delay, {room_.begin(), room_.begin() + n}});
    }
  }

  /// Writes what is due; returns when the next packet is due.
  Clock::time_point write_due() {
    Clock::time_point next = Clock::time_point::max();
    for (Lane& lane : lanes_) {
      Clock::time_point now = Clock::now();
      while (!lane.waiting.empty() && lane.waiting.front().due <= now) {
        const Packet& packet = lane.waiting.front();
        ++figures_.packets;
        figures_.lost += write(lane.to, packet.bytes.data(), packet.bytes.size()) < 0 ? 1 : 0;
        total_lateness_ += now - packet.due;
        figures_.worst_lateness = std::max<std::chrono::nanoseconds>(figures_.worst_lateness, now - packet.due);
        lane.waiting.pop_front();
        now = Clock::now();
      }
      if (!lane.waiting.empty()) next = std::min(next, lane.waiting.front().due);
    }
    return next;
  }

  void arm(Clock::time_point next) {
    armed_ = next;
    itimerspec when{};  // zero disarms
    if (next != Clock::time_point::max()) {
      const auto since = next.time_since_epoch();
      const auto whole = std::chrono::floor<std::chrono::seconds>(since);
      when.it_value.tv_sec = whole.count();
      when.it_value.tv_nsec = std::max<std::int64_t>(1, std::chrono::nanoseconds(since - whole).count());
    }
    if (timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) != 0) throw failed("cannot set a timer");
  }

  UniqueFd epoll_;
  UniqueFd timer_;
  Clock::time_point armed_ = Clock::time_point::max();
  std::vector<Lane> lanes_;
  std::vector<std::byte> room_ = std::vector<std::byte>(kLargestPacket);
  DelayFigures figures_;
  std::chrono::nanoseconds total_lateness_{};
};

}  // namespace

DelayFigures run_delay_line(std::span<const DelayedWire> wires, int stop) {
  prctl(PR_SET_TIMERSLACK, 1UL);  // nanoseconds; the default would add 50 us to every packet
  return Line(wires, stop).run();
}

}  // namespace syntony
