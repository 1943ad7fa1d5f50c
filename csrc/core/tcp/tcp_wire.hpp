// The bytes on a TCP connection of a group. Everything is little-endian, as in memory.
//
//   connecting     who dials: Hello ->   <- Ack   Answer ->   <- Welcome :who accepts
//   data socket    FramePrefix(data), FrameHeader, payload | FramePrefix(credit)   in any mixture
//   control socket ControlPrefix, body
//
// Hello, Ack and Answer prove by a keyed hash that who sends them knows the group's token, which never travels: Ack
// over a number that Hello has just made up, Answer over one that Ack has. So what somebody has recorded opens no
// connection. Later messages carry marks derived from the token, from which it cannot be found: they guard against
// connections of groups that are gone, not against somebody who can change what is on the wire.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "core/frames/frame_wire.hpp"
#include "core/sip_hash.hpp"

namespace syntony {

inline constexpr std::uint32_t kHelloMagic = 0x48535953;    // "SYSH"
inline constexpr std::uint32_t kAckMagic = 0x41535953;      // "SYSA"
inline constexpr std::uint32_t kWelcomeMagic = 0x57535953;  // "SYSW"
/// 5: either rank of a pair dials; 6: control messages are relayed; 7: statuses of many ranks in one.
inline constexpr std::uint16_t kWireVersion = 7;
inline constexpr std::uint16_t kControlFlow = 0xffff;

using Nonce = std::array<std::uint64_t, 2>;  // random, used once

struct Hello {
  std::uint32_t magic = kHelloMagic;
  std::uint16_t version = kWireVersion;
  std::uint16_t flow = 0;  // which data socket of the pair, or kControlFlow
  SipHash proof{};
  Nonce nonce{};
  std::uint32_t group = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t flows = 0;  // how many the sender will open
};
static_assert(sizeof(Hello) == 56);

struct Ack {
  std::uint32_t magic = kAckMagic;
  std::uint16_t version = kWireVersion;
  std::uint16_t flow = 0;
  SipHash proof{};
  Nonce nonce{};
  std::uint32_t from = 0;
  std::uint32_t flows = 0;  // how many the sender of the Ack expects
};
static_assert(sizeof(Ack) == 48);

struct Answer {
  SipHash proof{};
  bool operator==(const Answer&) const = default;
};
static_assert(sizeof(Answer) == 16);

struct Welcome {
  std::uint32_t magic = kWelcomeMagic;
};

/// Of a Hello or an Ack: what only a rank of the group can compute, from all its other fields and what it answers. It
/// says to which rank it speaks, so whoever receives it cannot use it elsewhere.
template <typename Message>
[[nodiscard]] SipHash proof_of(Message message, const SipKey& token, const Nonce& answered = {}) {
  message.proof = {};
  std::array<char, sizeof(Message) + sizeof(Nonce)> said;
  std::memcpy(said.data(), &message, sizeof(message));
  std::memcpy(said.data() + sizeof(message), &answered, sizeof(answered));
  return sip_hash(token, {said.data(), said.size()});
}
template <typename Message>
[[nodiscard]] Message proven(Message message, const SipKey& token, const Nonce& answered = {}) {
  message.proof = proof_of(message, token, answered);
  return message;
}

/// What the rank that dials says to an Ack.
[[nodiscard]] inline Answer answer_to(const Ack& ack, const Hello& hello, const SipKey& token) {
  return {sip_hash(proof_of(ack, token, hello.nonce), "syntony answer")};
}

/// Whether a Hello comes from a rank of this group that dials `self`, or repeats one that did.
[[nodiscard]] inline bool admissible(const Hello& hello, const GroupIdentity& self) {
  return hello.magic == kHelloMagic && hello.version == kWireVersion && hello.proof == proof_of(hello, self.token) &&
         hello.group == self.group && hello.to == self.rank && hello.from != self.rank && hello.from < self.ranks;
}

struct ControlPrefix {
  enum class Kind : std::uint32_t { inquire = 1, status = 2, abort = 3, leave = 4, post = 5, dead = 6, statuses = 7 };
  static constexpr std::uint32_t kMagic = 0x50535953;  // "SYSP"
  std::uint32_t magic = kMagic;
  Kind kind = Kind::inquire;
  std::uint64_t token = 0;
  std::uint32_t length = 0;  // bytes of the body, at most kLargestBody
  std::uint32_t rank = 0;    // of which it tells
};
static_assert(sizeof(ControlPrefix) == 24);
inline constexpr std::uint32_t kLargestBody = 64 * 1024;

/// What ranks have said alike, in the body of `statuses`, after the epoch: a status, then a set of ranks, a bit each.
struct StatusGroup {
  std::uint32_t bytes = 0;       // of the status
  std::uint32_t first_word = 0;  // the set begins with rank 64 * first_word
  std::uint32_t words = 0;
  std::uint32_t left = 0;  // 1: and they have left since
};
static_assert(sizeof(StatusGroup) == 16);

}  // namespace syntony
