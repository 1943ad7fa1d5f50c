// What precedes a frame on wires that carry whole messages between any two endpoints (UCX, libfabric) without naming
// the sender: the ranks, and a mark that only ranks of the group can compute, different for each pair and direction.
// Messages with a wrong mark come from strangers or from a group that is gone: they are dropped silently, without
// blaming anybody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/frames/frame_wire.hpp"

namespace syntony {

struct MessageHeader {
  std::uint64_t mark = 0;
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  FramePrefix prefix;
  // For data only: credits end here.
  std::uint64_t credit = 0;  // as in a credit, for the frames of the same stream in the other direction
  FrameHeader header;

  [[nodiscard]] std::size_t bytes() const;
};
static_assert(sizeof(MessageHeader) == 96);
inline constexpr std::size_t kCreditBytes = offsetof(MessageHeader, credit);

inline std::size_t MessageHeader::bytes() const {
  return prefix.kind == FramePrefix::kData ? sizeof(MessageHeader) : kCreditBytes;
}

[[nodiscard]] inline std::uint64_t mark_of(const GroupIdentity& identity, std::uint32_t from, std::uint32_t to) {
  return sip_hash(identity.token, "syntony message " + std::to_string(from) + ">" + std::to_string(to))[0];
}

}  // namespace syntony
