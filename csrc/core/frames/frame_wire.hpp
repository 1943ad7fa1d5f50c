// What every transport between hosts puts before a frame, and the marks by which ranks of a group recognize frames.
//
//   FramePrefix(data), FrameHeader, payload | FramePrefix(credit) | FramePrefix(lost) | FramePrefix(probe)
//   FramePrefix(cut), FrameHeader | FramePrefix(part), part of the payload
//
// `lost` and `probe` only where several sockets lead to a peer (tcp_failover.cpp); `cut` and `part` only over the one
// socket that does (tcp_flow.hpp). The parts of a frame's payload follow in order; something else may come between.
//
// Everything is little-endian, as in memory. The marks are derived from the group's token, which is never sent and
// cannot be recovered from them: they protect against frames of groups that are gone, not against somebody who can
// change what is on the wire.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/sip_hash.hpp"
#include "core/transport.hpp"

namespace syntony {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

/// What every frame of a group carries unencrypted. Derived from the group's token, which readers cannot learn from it.
struct GroupMarks {
  std::uint64_t token = 0;
  std::uint32_t prefix = 0;
  std::uint32_t group = 0;

  constexpr GroupMarks() = default;
  constexpr explicit GroupMarks(const SipKey& secret) {
    const SipHash hash = sip_hash(secret, "syntony frames");
    token = hash[0];
    prefix = static_cast<std::uint32_t>(hash[1]);
    group = static_cast<std::uint32_t>(hash[1] >> 32U);
  }
};

/// A rank's identity towards the peers it connects to.
struct GroupIdentity {
  std::array<std::uint64_t, 2> token{};  // random, fresh for every group, equal on all its ranks
  std::uint32_t group = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;
  GroupMarks marks{token};

  /// The required value of FrameHeader::token.
  [[nodiscard]] constexpr std::uint64_t frame_token() const { return marks.token; }
  /// The mark in the prefix of every frame, because credits have no FrameHeader.
  [[nodiscard]] constexpr std::uint32_t prefix_token() const { return marks.prefix; }
};

struct FramePrefix {
  static constexpr std::uint32_t kData = 0x46535953;    // "SYSF": a FrameHeader and its payload follow
  static constexpr std::uint32_t kCredit = 0x43535953;  // "SYSC": nothing follows
  static constexpr std::uint32_t kLost = 0x4c535953;    // "SYSL": nothing follows
  static constexpr std::uint32_t kProbe = 0x51535953;   // "SYSQ": nothing follows; only its acknowledgement counts
  static constexpr std::uint32_t kCut = 0x43465953;     // "SYFC": a FrameHeader follows; its payload comes in parts
  static constexpr std::uint32_t kPart = 0x50465953;    // "SYFP": part of the payload of the stream's cut frame follows
  std::uint32_t kind = kData;
  std::uint32_t token = 0;
  /// data, cut: of the frame in its stream, from 0; credit: frames released so far; lost: number of the socket; part:
  /// bytes.
  std::uint64_t number = 0;
  std::uint32_t window = 0;
  std::uint32_t channel = 0;

  bool operator==(const FramePrefix&) const = default;
};
static_assert(sizeof(FramePrefix) == 24);

}  // namespace syntony
