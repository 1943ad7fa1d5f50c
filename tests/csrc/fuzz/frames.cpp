// Frames and credits as a peer may send them, in pieces of any size. The expected result comes from Reading: a simple
// walk over the whole input.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <list>
#include <map>
#include <optional>

#include "core/tcp/tcp_transport.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

constexpr StreamShape kShape{.ranks = 2, .channels = 2, .windows = 2, .depth = 4, .slot_bytes = 256};
constexpr GroupIdentity kSelf{.token = {0x1234567890abcdef, 0xfedcba0987654321}, .group = 7, .rank = 0, .ranks = 2};
constexpr std::uint32_t kCommitted = 2;  // frames that we sent on channel 1, window 0: credits up to that are accepted

void add_frame(Bytes& bytes, std::uint64_t number, std::uint16_t channel, std::uint32_t window, std::uint32_t length) {
  append(bytes, FramePrefix{.token = kSelf.prefix_token(), .number = number, .window = window, .channel = channel});
  append(bytes, FrameHeader{.token = kSelf.frame_token(), .group = 7, .channel = channel, .length = length});
  for (std::uint32_t i = 0; i < length; ++i) bytes.push_back(static_cast<std::byte>(number * 31 + i));
}

void add_credit(Bytes& bytes, std::uint64_t number, std::uint32_t channel, std::uint32_t window) {
  append(bytes, FramePrefix{.kind = FramePrefix::kCredit,
                            .token = kSelf.prefix_token(),
                            .number = number,
                            .window = window,
                            .channel = channel});
}

/// A frame whose payload comes in parts, or its head alone.
void add_cut(Bytes& bytes, std::uint64_t number, std::uint16_t channel, std::uint32_t window, std::uint32_t length) {
  const std::uint32_t token = kSelf.prefix_token();
  append(bytes, FramePrefix{
                    .kind = FramePrefix::kCut, .token = token, .number = number, .window = window, .channel = channel});
  append(bytes, FrameHeader{.token = kSelf.frame_token(), .group = 7, .channel = channel, .length = length});
}

void add_part(Bytes& bytes, std::uint32_t channel, std::uint32_t window, std::uint32_t length) {
  const std::uint32_t token = kSelf.prefix_token();
  append(
      bytes,
      FramePrefix{.kind = FramePrefix::kPart, .token = token, .number = length, .window = window, .channel = channel});
  for (std::uint32_t i = 0; i < length; ++i) bytes.push_back(static_cast<std::byte>(length * 17 + i));
}

std::vector<Bytes> frame_seeds() {
  std::vector<Bytes> seeds(9);
  add_frame(seeds[0], 0, 0, 0, 256);
  for (std::uint64_t number = 0; number < 4; ++number) add_frame(seeds[1], number, 1, 1, 3);
  add_credit(seeds[2], 1, 1, 0);
  add_frame(seeds[2], 0, 1, 0, 0);
  add_credit(seeds[2], 2, 1, 0);
  for (const std::uint64_t number : {3U, 1U, 0U, 2U}) add_frame(seeds[3], number, 0, 1, 100);  // over several flows
  add_frame(seeds[4], 0, 0, 0, 1);
  add_frame(seeds[4], 0, 1, 1, 255);
  add_frame(seeds[4], 1, 0, 0, 64);
  append(seeds[5], FramePrefix{.kind = FramePrefix::kProbe, .token = kSelf.prefix_token()});
  append(seeds[5], FramePrefix{.kind = FramePrefix::kLost, .token = kSelf.prefix_token()});
  add_frame(seeds[5], 0, 0, 0, 3);
  add_cut(seeds[6], 0, 0, 0, 200);
  for (const std::uint32_t length : {100U, 1U, 99U}) add_part(seeds[6], 0, 0, length);
  add_cut(seeds[7], 0, 0, 0, 20);  // others between its parts, also of another cut frame
  add_part(seeds[7], 0, 0, 10);
  add_frame(seeds[7], 0, 1, 1, 7);
  add_cut(seeds[7], 1, 1, 1, 8);
  add_part(seeds[7], 1, 1, 3);
  add_credit(seeds[7], 1, 1, 0);
  add_part(seeds[7], 0, 0, 10);
  add_part(seeds[7], 1, 1, 5);
  for (std::uint64_t number = 0; number < 4; ++number) {
    add_cut(seeds[8], number, 0, 1, 2);
    add_part(seeds[8], 0, 1, 2);
  }
  return seeds;
}

using Stream = std::pair<std::uint32_t, std::uint32_t>;  // channel, window

struct Reading {
  std::map<Stream, std::map<std::uint64_t, Bytes>> frames;         // complete
  std::map<Stream, std::map<std::uint64_t, FrameHeader>> headers;  // of those that have begun
  bool refused = false;
  bool whole = true;  // nothing is left over or unfinished
};

Reading read(std::span<const std::byte> input) {
  struct Cut {
    std::uint64_t number = 0;
    std::uint32_t length = 0;
    Bytes bytes;
  };
  Reading reading;
  std::map<Stream, Cut> cuts;
  const auto refuse = [&] { reading.refused = true; };
  while (!reading.refused && !input.empty()) {
    FramePrefix prefix;
    if (input.size() < sizeof(prefix)) break;
    std::memcpy(&prefix, input.data(), sizeof(prefix));
    const bool credit = prefix.kind == FramePrefix::kCredit;
    const bool stranger = prefix.token != kSelf.prefix_token() || prefix.channel > 1 || prefix.window > 1;
    if (credit) {
      const std::uint64_t most = prefix.channel == 1 && prefix.window == 0 ? kCommitted : 0;
      if (stranger || prefix.number > most) refuse();
      input = input.subspan(sizeof(prefix));
      continue;
    }
    const bool lost = prefix.kind == FramePrefix::kLost;
    if (lost || prefix.kind == FramePrefix::kProbe) {  // the only socket, which stays
      if (stranger || (lost && prefix.number > 0)) refuse();
      input = input.subspan(sizeof(prefix));
      continue;
    }
    const Stream stream{prefix.channel, prefix.window};
    if (prefix.kind == FramePrefix::kPart) {
      const auto cut = cuts.find(stream);
      if (stranger || cut == cuts.end() || prefix.number == 0 ||
          prefix.number > cut->second.length - cut->second.bytes.size()) {
        refuse();
        break;
      }
      input = input.subspan(sizeof(prefix));
      if (input.size() < prefix.number) {
        reading.whole = false;
        break;
      }
      const auto part = input.first(prefix.number);
      Bytes& bytes = cut->second.bytes;
      bytes.insert(bytes.end(), part.begin(), part.end());
      input = input.subspan(prefix.number);
      if (bytes.size() < cut->second.length) continue;
      reading.frames[stream][cut->second.number] = bytes;
      cuts.erase(cut);
      continue;
    }
    const bool begins = prefix.kind == FramePrefix::kCut;
    if (prefix.kind != FramePrefix::kData && !begins) {
      refuse();
      break;
    }
    FrameHeader header;
    if (input.size() < sizeof(prefix) + sizeof(header)) break;
    std::memcpy(&header, input.data() + sizeof(prefix), sizeof(header));
    if (stranger || header.token != kSelf.frame_token() || header.group != 7 || header.channel != prefix.channel ||
        header.length > kShape.slot_bytes || prefix.number > 3 ||
        !reading.headers[stream].try_emplace(prefix.number, header).second ||
        (begins && (header.length == 0 || cuts.contains(stream)))) {
      refuse();
      break;
    }
    input = input.subspan(sizeof(prefix) + sizeof(header));
    if (begins) {
      cuts[stream] = {.number = prefix.number, .length = header.length, .bytes = {}};
      continue;
    }
    if (input.size() < header.length) {
      reading.whole = false;
      break;
    }
    const auto payload = input.first(header.length);
    reading.frames[stream][prefix.number] = Bytes(payload.begin(), payload.end());
    input = input.subspan(header.length);
  }
  reading.whole = reading.whole && input.empty() && cuts.empty();
  return reading;
}

/// What is readable must be the frames of a stream from its first on, byte for byte, and nothing else.
void require_frames(TcpTransport& transport, Reading& expected) {
  for (std::uint32_t channel = 0; channel < kShape.channels; ++channel) {
    for (std::uint32_t window = 0; window < kShape.windows; ++window) {
      Receiver& receiver = transport.receiver(1, channel, window);
      std::map<std::uint64_t, Bytes>& frames = expected.frames[{channel, window}];
      for (std::uint64_t number = 0;; ++number) {
        const FrameHeader* header = receiver.front();
        const auto frame = frames.find(number);
        require((header != nullptr) == (frame != frames.end()), "a frame is missing, or one came out of nothing");
        if (header == nullptr) break;
        require(header->length == frame->second.size(), "a frame has another length than was sent");
        if (header->length > 0) {
          require(std::memcmp(receiver.payload(), frame->second.data(), header->length) == 0, "a payload has changed");
        }
        receiver.release();
      }
    }
  }
}

/// Memory outside the slots for some frames, each exactly as large as its frame.
class Places {
 public:
  Places(TcpTransport& transport, const Reading& expected, std::size_t which) : transport_(transport) {
    for (const auto& [stream, headers] : expected.headers) {
      for (const auto& [number, header] : headers) {
        if ((which++ & 3U) == 0) continue;
        FrameHeader told = header;
        if ((which & 4U) != 0) ++told.sequence;  // a different frame comes
        Bytes& place = places_[stream].emplace_back(header.length);
        receiver(stream).expect(static_cast<std::uint32_t>(number), told, place.data());
      }
    }
  }
  void forget() {
    for (const auto& [stream, places] : places_) receiver(stream).forget_places();
    places_.clear();
  }

 private:
  [[nodiscard]] Receiver& receiver(Stream stream) const { return transport_.receiver(1, stream.first, stream.second); }

  TcpTransport& transport_;
  std::map<Stream, std::list<Bytes>> places_;
};

bool take_frames(std::span<const std::byte> input) {
  Reading expected = read(input);
  std::array<int, 2> ends{};
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0, "no socket pair");
  const UniqueFd peer(ends[1]);
  std::vector<TcpPeer> peers(1);
  peers[0].rank = 1;
  peers[0].endpoint = "the fuzzer";
  peers[0].flows.emplace_back(UniqueFd(ends[0]));
  TcpTransport transport(kShape, kSelf, peers);
  Sender& sender = transport.sender(1, 1, 0);
  for (std::uint32_t i = 0; i < kCommitted; ++i) {
    require(sender.reserve(1) != nullptr, "no room to send");
    sender.commit({.token = kSelf.frame_token(), .group = 7, .channel = 1, .length = 1});
  }
  bool refused = false;
  const auto progress = [&] {
    try {
      while (transport.progress()) {
      }
    } catch (const Error& error) {
      require(error.kind() == Error::Kind::mismatch && error.ranks() == std::vector<int>{1}, "the peer is not named");
      refused = true;
    }
  };
  // In one piece, or cut in two or three, depending on the input itself, so that it is reproducible.
  std::size_t hash = input.size();
  for (const std::byte byte : input) hash = hash * 31 + static_cast<std::size_t>(byte);
  Places places(transport, expected, hash);
  for (std::size_t cuts = hash % 3; !input.empty() && !refused; --cuts) {
    const std::size_t piece = cuts == 0 ? input.size() : (hash / 3) % input.size();
    (void)!::write(peer.get(), input.data(), piece);
    input = input.subspan(piece);
    progress();
    if (cuts == 0) break;
    if ((hash & 8U) != 0) places.forget();
  }
  progress();
  require(refused == expected.refused, refused ? "what is right was refused" : "what is wrong was believed");
  require_frames(transport, expected);
  return !refused && expected.whole;
}

void end_of_frames() {}

}  // namespace

const Target kFrames{"frames", frame_seeds, take_frames, end_of_frames};

}  // namespace syntony::fuzz
