// Traffic of random shape between the ranks of a test, and a rank that sends and receives its part of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace tests {

using syntony::FrameHeader, syntony::Receiver, syntony::Sender, syntony::StreamShape, syntony::TcpOptions,
    syntony::TcpTransport;

/// One stream of a random test, known to both ends.
struct Traffic {
  std::uint32_t source, destination, channel, window;
  std::vector<std::uint32_t> lengths;  // of its frames
  std::uint64_t seed;

  [[nodiscard]] std::mt19937_64 bytes_of_frame(std::size_t frame) const { return std::mt19937_64(seed * 1000 + frame); }
};

inline void fill(std::byte* to, std::uint32_t length, std::mt19937_64 random) {
  for (std::uint32_t i = 0; i < length; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(to + i, &word, std::min<std::size_t>(8, length - i));
  }
}

inline bool holds(const std::byte* data, std::uint32_t length, std::mt19937_64 random) {
  for (std::uint32_t i = 0; i < length; i += 8) {
    const std::uint64_t word = random();
    if (std::memcmp(data + i, &word, std::min<std::size_t>(8, length - i)) != 0) return false;
  }
  return true;
}

struct Scenario {
  StreamShape shape;
  TcpOptions options;
  bool when_needed = false;  // data sockets are made when first needed
  std::vector<Traffic> traffic;
};

inline Scenario random_scenario(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&random](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(random() % (high - low + 1));
  };
  Scenario scenario;
  scenario.shape = {.ranks = pick(2, 5),
                    .channels = pick(1, 3),
                    .windows = pick(1, 3),
                    .depth = pick(1, 7),
                    .slot_bytes = std::array{1U, 64U, 1000U, 4097U, 65536U, 200'000U}[pick(0, 5)],
                    .short_frames = std::array{0U, 5U, 32U}[pick(0, 2)]};
  scenario.options.flows = pick(1, 4);
  scenario.when_needed = pick(0, 1) == 1;
  if (pick(0, 1) == 1) scenario.options.send_buffer = scenario.options.receive_buffer = 4608;  // partial reads, writes
  for (std::uint32_t source = 0; source < scenario.shape.ranks; ++source) {
    for (std::uint32_t destination = 0; destination < scenario.shape.ranks; ++destination) {
      for (std::uint32_t stream = 0; stream < scenario.shape.channels * scenario.shape.windows; ++stream) {
        if (source == destination || pick(0, 2) == 0) continue;
        Traffic traffic{source, destination, stream / scenario.shape.windows, stream % scenario.shape.windows,
                        {},     random()};
        // More than `depth`; of large frames not many more, as a sanitizer takes its time.
        traffic.lengths.resize(pick(1, scenario.shape.slot_bytes > 10'000 ? 12 : 40));
        for (std::uint32_t& length : traffic.lengths) {
          // Short, full, and anything between.
          const std::uint32_t most = scenario.shape.slot_bytes;
          length = std::array{std::min(pick(0, 100), most), most, pick(0, most)}[pick(0, 2)];
        }
        scenario.traffic.push_back(std::move(traffic));
      }
    }
  }
  return scenario;
}

/// Sends and receives everything that involves this rank, a random piece at a time.
class Courier {
 public:
  Courier(Rank& rank, const Scenario& scenario, TcpTransport& transport)
      : rank_(rank), transport_(transport), random_(rank.rank) {
    for (const Traffic& traffic : scenario.traffic) {
      if (traffic.source == rank.rank) outgoing_.push_back({&traffic});
      if (traffic.destination == rank.rank) incoming_.push_back({&traffic});
    }
  }

  bool step() {
    for (Leg& leg : outgoing_) {
      for (std::uint64_t burst = random_() % 4; burst > 0; --burst) send_one(leg);
    }
    transport_.progress();
    for (Leg& leg : incoming_) {
      for (std::uint64_t burst = random_() % 4; burst > 0; --burst) receive_one(leg);
    }
    if (random_() % 2 == 0) transport_.wake();
    const auto done = [](const Leg& leg) { return leg.frame == leg.traffic->lengths.size(); };
    return std::ranges::all_of(outgoing_, done) && std::ranges::all_of(incoming_, done);
  }

 private:
  struct Leg {
    const Traffic* traffic;
    std::size_t frame = 0;
    std::map<std::size_t, std::unique_ptr<std::byte[]>> places = {};  // by frame: where it was expected
  };

  [[nodiscard]] FrameHeader header_of(const Traffic& traffic, std::size_t frame) const {
    FrameHeader header = rank_.header(static_cast<std::uint16_t>(traffic.channel), traffic.lengths[frame]);
    header.sequence = frame;
    header.fingerprint = traffic.seed;
    return header;
  }

  void send_one(Leg& leg) {
    const Traffic& traffic = *leg.traffic;
    if (leg.frame == traffic.lengths.size()) return;
    Sender& sender = transport_.sender(traffic.destination, traffic.channel, traffic.window);
    const std::uint32_t length = traffic.lengths[leg.frame];
    std::byte* const room = sender.reserve(length);
    require(sender.reserve(length) == room, "reserve() is idempotent");
    if (room == nullptr) return;
    const FrameHeader header = header_of(traffic, leg.frame);
    if (random_() % 2 == 0) {
      fill(room, length, traffic.bytes_of_frame(leg.frame));
      sender.commit(header);
    } else {  // from memory that is freed immediately
      const auto payload = std::make_unique<std::byte[]>(length);
      fill(payload.get(), length, traffic.bytes_of_frame(leg.frame));
      require(sender.send(header, payload.get()), "there is room");
      std::memset(payload.get(), 0xff, length);
    }
    ++leg.frame;
  }

  void receive_one(Leg& leg) {
    const Traffic& traffic = *leg.traffic;
    Receiver& receiver = transport_.receiver(traffic.source, traffic.channel, traffic.window);
    if (random_() % 4 == 0) expect_some(leg, receiver);
    if (random_() % 16 == 0) {
      receiver.forget_places();
      leg.places.clear();
    }
    const FrameHeader* const header = receiver.front();
    if (header == nullptr) return;
    require(leg.frame < traffic.lengths.size(), "no more frames than were sent");
    require(header->sequence == leg.frame && header->fingerprint == traffic.seed, "in order, on its stream");
    require(header->length == traffic.lengths[leg.frame], "whole");
    require(holds(receiver.payload(), header->length, traffic.bytes_of_frame(leg.frame)), "unchanged");
    receiver.release();
    leg.places.erase(leg.frame);
    ++leg.frame;
  }

  /// Announces where the next frames belong; some announcements are wrong.
  void expect_some(Leg& leg, Receiver& receiver) {
    for (std::size_t ahead = 0; ahead <= random_() % 8 && leg.frame + ahead < leg.traffic->lengths.size(); ++ahead) {
      const std::size_t frame = leg.frame + ahead;
      if (leg.places.contains(frame)) continue;
      FrameHeader header = header_of(*leg.traffic, frame);
      leg.places[frame] = std::make_unique<std::byte[]>(header.length);
      if (random_() % 4 == 0) ++header.slice;
      receiver.expect(static_cast<std::uint32_t>(ahead), header, leg.places[frame].get());
    }
  }

  Rank& rank_;
  TcpTransport& transport_;
  std::mt19937_64 random_;
  std::vector<Leg> outgoing_;
  std::vector<Leg> incoming_;
};

}  // namespace tests
