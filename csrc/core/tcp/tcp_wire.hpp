// The bytes on a TCP connection of a group. Everything is little-endian, as in memory.
//
//   connecting     higher rank: Hello ->                    <- Ack :lower rank
//   data socket    FramePrefix(data), FrameHeader, payload | FramePrefix(credit)   in any mixture
//   control socket ControlPrefix, body
//
// Hello and Ack prove by a keyed hash that who sends them knows the group's token: it is not told before both sides
// have proven that. The token in every later message guards against connections of groups that are gone. None of this
// is a defence against somebody who can read the wire.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/sip_hash.hpp"
#include "core/transport.hpp"

namespace syntony {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

/// Who a rank is among those that connect.
struct TcpIdentity {
  std::array<std::uint64_t, 2> token{};  // random, fresh for every group, equal on all its ranks
  std::uint32_t group = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;

  /// What FrameHeader::token must hold.
  [[nodiscard]] std::uint64_t frame_token() const { return token[0]; }
  /// What the prefix of every frame holds: credits have no FrameHeader.
  [[nodiscard]] std::uint32_t prefix_token() const { return static_cast<std::uint32_t>(token[1]); }
};

inline constexpr std::uint32_t kHelloMagic = 0x48535953;  // "SYSH"
inline constexpr std::uint32_t kAckMagic = 0x41535953;    // "SYSA"
inline constexpr std::uint16_t kWireVersion = 3;          // 3: proofs in the place of tokens
inline constexpr std::uint16_t kControlFlow = 0xffff;

struct Hello {
  std::uint32_t magic = kHelloMagic;
  std::uint16_t version = kWireVersion;
  std::uint16_t flow = 0;  // which data socket of the pair, or kControlFlow
  SipHash proof{};
  std::uint32_t group = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t flows = 0;  // how many the sender will open
};
static_assert(sizeof(Hello) == 40);

struct Ack {
  std::uint32_t magic = kAckMagic;
  std::uint16_t version = kWireVersion;
  std::uint16_t flow = 0;
  SipHash proof{};
  std::uint32_t from = 0;
  std::uint32_t flows = 0;  // how many the sender of the Ack expects
};
static_assert(sizeof(Ack) == 32);

/// Of a Hello or an Ack: what only a rank of the group can compute, from all its other fields. It says to which rank it
/// speaks, so whoever receives it cannot use it elsewhere.
template <typename Message>
[[nodiscard]] SipHash proof_of(Message message, const SipKey& token) {
  message.proof = {};
  return sip_hash(token, {reinterpret_cast<const char*>(&message), sizeof(message)});
}
template <typename Message>
[[nodiscard]] Message proven(Message message, const SipKey& token) {
  message.proof = proof_of(message, token);
  return message;
}

/// Whether a Hello comes from a rank of this group that dials `self`: of every pair the higher rank does.
[[nodiscard]] inline bool admissible(const Hello& hello, const TcpIdentity& self) {
  return hello.magic == kHelloMagic && hello.version == kWireVersion && hello.proof == proof_of(hello, self.token) &&
         hello.group == self.group && hello.to == self.rank && hello.from > self.rank && hello.from < self.ranks;
}

struct FramePrefix {
  static constexpr std::uint32_t kData = 0x46535953;    // "SYSF": a FrameHeader and its payload follow
  static constexpr std::uint32_t kCredit = 0x43535953;  // "SYSC": nothing follows
  std::uint32_t kind = kData;
  std::uint32_t token = 0;
  std::uint64_t number = 0;  // data: which frame of the stream, from 0; credit: how many frames were released so far
  std::uint32_t window = 0;
  std::uint32_t channel = 0;
};
static_assert(sizeof(FramePrefix) == 24);

struct ControlPrefix {
  enum class Kind : std::uint32_t { inquire = 1, status = 2, abort = 3, leave = 4, post = 5 };
  static constexpr std::uint32_t kMagic = 0x50535953;  // "SYSP"
  std::uint32_t magic = kMagic;
  Kind kind = Kind::inquire;
  std::uint64_t token = 0;
  std::uint32_t length = 0;  // bytes of the body, at most kLargestBody
  std::uint32_t zero = 0;
};
static_assert(sizeof(ControlPrefix) == 24);
inline constexpr std::uint32_t kLargestBody = 64 * 1024;

}  // namespace syntony
