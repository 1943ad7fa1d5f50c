// core/shm/shm_transport.cpp: frames through a stream, and the doorbell of a rank that waits for them.
#include <array>

#include "model/host.hpp"
#include "model/scenario.hpp"

namespace syntony::model {
namespace {

std::uint8_t byte_of(std::uint64_t frame) { return static_cast<std::uint8_t>(40 + frame); }

template <typename Wait>
void send(Host& host, std::uint64_t frames, Wait wait) {
  Sender& stream = host.transports[0].sender(1, 0, 0);
  for (std::uint64_t frame = 0; frame < frames; ++frame) {
    std::byte* room = nullptr;
    wait([&] { return (room = stream.reserve(1)) != nullptr; });
    put(room, byte_of(frame));
    stream.commit({.sequence = frame, .length = 1});
    host.transports[0].wake();
  }
}

template <typename Wait>
void receive(Host& host, std::uint64_t frames, Wait wait) {
  Receiver& stream = host.transports[1].receiver(0, 0, 0);
  for (std::uint64_t frame = 0; frame < frames; ++frame) {
    const FrameHeader* header = nullptr;
    wait([&] { return (header = stream.front()) != nullptr; });
    require(header->sequence == frame, "a frame comes out of turn");
    require(get(stream.payload()) == byte_of(frame), "another frame's byte is read");
    stream.release();
    host.transports[1].wake();
  }
}

Begin polling(std::uint32_t depth, std::uint64_t frames) {
  return [=]() -> std::vector<std::function<void()>> {
    const auto host = std::make_shared<Host>(2, depth);
    const auto wait = [=](auto ready) { host->poll_until(ready); };
    return {[=] { send(*host, frames, wait); }, [=] { receive(*host, frames, wait); }};
  };
}

Begin sleeping(std::uint32_t depth, std::uint64_t frames) {
  return [=]() -> std::vector<std::function<void()>> {
    const auto host = std::make_shared<Host>(2, depth);
    return {[=] { send(*host, frames, [=](auto ready) { host->sleep_until(0, ready); }); },
            [=] { receive(*host, frames, [=](auto ready) { host->sleep_until(1, ready); }); }};
  };
}

/// Room that the sender learns of by asking how much is in flight.
Begin counting() {
  return [=]() -> std::vector<std::function<void()>> {
    const auto host = std::make_shared<Host>(2, 1);
    const auto wait = [=](auto ready) { host->poll_until(ready); };
    return {[=] {
              send(*host, 1, wait);
              Sender& stream = host->transports[0].sender(1, 0, 0);
              host->poll_until([&] { return stream.on_their_way() == 0; });
              std::byte* room = stream.reserve(1);
              put(room, byte_of(1));
              stream.commit({.sequence = 1, .length = 1});
            },
            [=] { receive(*host, 2, wait); }};
  };
}

const std::array kAll{
    Scenario{"streams: 1 slot, 2 frames, polling", polling(1, 2)},
    Scenario{"streams: 1 slot, 4 frames, polling", polling(1, 4), true},
    Scenario{"streams: 2 slots, 3 frames, polling", polling(2, 3)},
    Scenario{"streams: 2 slots, 5 frames, polling", polling(2, 5), true},
    Scenario{"streams: 1 slot, counted", counting()},
    Scenario{"streams: 2 slots, 2 frames, asleep", sleeping(2, 2)},
    Scenario{"streams: 1 slot, 2 frames, asleep", sleeping(1, 2), true},
};

}  // namespace

std::span<const Scenario> streams() { return kAll; }

}  // namespace syntony::model
