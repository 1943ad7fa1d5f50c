// The frames of a link that the peer has not released yet as far as is known: by stream, as many as it has slots. Where
// several sockets lead to the peer, this is what has to be sent again when one fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/transport.hpp"

namespace syntony {

struct SentFrame {
  std::uint64_t number = 0;
  std::size_t flow = 0;  // the socket over which it was sent last
  FrameHeader header;
  const std::byte* payload = nullptr;  // in its slot, so unchanged until its credit has come back
  bool taken = false;                  // the kernel has taken all of it, over this socket or an earlier one
};

class SentFrames {
 public:
  SentFrames(std::size_t streams, std::size_t frames) : streams_(streams), each_(frames) {}

  void note(std::size_t stream, const SentFrame& frame) {
    if (frames_.empty()) frames_.resize(streams_);
    std::vector<SentFrame>& slots = frames_[stream];
    if (slots.empty()) slots.resize(each_);
    slots[frame.number % each_] = frame;
  }
  /// Streams of which frames may be kept: none before the first note().
  [[nodiscard]] std::size_t streams() const { return frames_.size(); }
  [[nodiscard]] bool used(std::size_t stream) const { return !frames_[stream].empty(); }
  /// Calls `visit` with each frame of the stream that was last sent over `flow`, among those from number `released` on,
  /// oldest first.
  template <typename Visit>
  void of(std::size_t stream, std::size_t flow, std::uint64_t released, const Visit& visit) {
    std::vector<SentFrame>& slots = frames_[stream];
    for (std::uint64_t number = released; number < released + slots.size(); ++number) {
      SentFrame& frame = slots[number % each_];
      if (frame.payload != nullptr && frame.number == number && frame.flow == flow) visit(frame);
    }
  }

 private:
  std::size_t streams_;
  std::size_t each_;
  std::vector<std::vector<SentFrame>> frames_;  // those of unused streams are empty
};

}  // namespace syntony
