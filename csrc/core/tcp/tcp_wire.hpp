// The bytes on a TCP connection of a group. Everything is little-endian, as in memory.
//
//  connecting     dialing side: Hello ->   <- Ack   Answer ->   <- Welcome :accepting side
//  data socket    FramePrefix(data), FrameHeader, payload | FramePrefix(credit, lost or probe)   in any mixture
//  control socket ControlPrefix, body
//
// Hello, Ack and Answer prove by a keyed hash that their sender knows the group's token, which is never sent: Ack over
// a fresh number from Hello, Answer over one from Ack. So a recording opens no connection. Later messages carry marks
// derived from the token, which cannot be recovered from them: they protect against connections of groups that are
// gone, not against somebody who can change what is on the wire. If ranks encrypt, TLS follows the Welcome
// (tls/tls_session.hpp), and frames and messages go over it.
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
/// 5: either rank of a pair dials; 6: control messages are relayed; 7: statuses of many ranks in one; 8: clocks; 9: a
/// rank that cannot dial another asks to be dialed; 10: lost sockets of a pair, 8 frames of a stream on their way;
/// 11: slices as long as the Program says, frames in parts; 12: streams over UCX in memory that both ends map; 13:
/// sockets that take the place of lost ones; 14: 32 short frames of a stream on their way.
inline constexpr std::uint16_t kWireVersion = 14;
inline constexpr std::uint16_t kControlFlow = 0xffff;

using Nonce = std::array<std::uint64_t, 2>;  // random, used once

struct Hello {
  std::uint32_t magic = kHelloMagic;
  std::uint16_t version = kWireVersion;
  std::uint16_t flow = 0;  // number of the data socket, or kControlFlow; from `flows` on: takes another's place
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

/// The proof in a Hello or an Ack, which only a rank of the group can compute, over all its other fields and what it
/// answers. It names the receiving rank, so the receiver cannot use it elsewhere.
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

/// The answer of the dialing rank to an Ack.
[[nodiscard]] inline Answer answer_to(const Ack& ack, const Hello& hello, const SipKey& token) {
  return {sip_hash(proof_of(ack, token, hello.nonce), "syntony answer")};
}

/// True if a Hello comes from a rank of this group that dials `self`, or replays one that did.
[[nodiscard]] inline bool admissible(const Hello& hello, const GroupIdentity& self) {
  return hello.magic == kHelloMagic && hello.version == kWireVersion && hello.proof == proof_of(hello, self.token) &&
         hello.group == self.group && hello.to == self.rank && hello.from != self.rank && hello.from < self.ranks;
}

struct ControlPrefix {
  enum class Kind : std::uint32_t {
    inquire = 1,
    status = 2,
    abort = 3,
    leave = 4,
    post = 5,
    dead = 6,
    statuses = 7,
    ask_time = 8,
    time = 9,
    call = 10
  };
  static constexpr std::uint32_t kMagic = 0x50535953;  // "SYSP"
  std::uint32_t magic = kMagic;
  Kind kind = Kind::inquire;
  std::uint64_t token = 0;
  std::uint32_t length = 0;  // bytes of the body, at most kLargestBody
  std::uint32_t rank = 0;    // that it is about
};
static_assert(sizeof(ControlPrefix) == 24);
inline constexpr std::uint32_t kLargestBody = 64 * 1024;

/// In the body of `call`: which rank is asked to dial the one that the message is about, and for what.
struct CallRequest {
  std::uint32_t to = 0;
  std::uint32_t control = 0;  // 1: for a control connection, 0: for data
  auto operator<=>(const CallRequest&) const = default;
};
static_assert(sizeof(CallRequest) == 8);

/// Ranks with equal statuses, in the body of `statuses`, after the epoch: a status, then a set of ranks, one bit each.
struct StatusGroup {
  std::uint32_t bytes = 0;       // of the status
  std::uint32_t first_word = 0;  // the set begins with rank 64 * first_word
  std::uint32_t words = 0;
  std::uint32_t left = 0;  // 1: they have left since
};
static_assert(sizeof(StatusGroup) == 16);

}  // namespace syntony
