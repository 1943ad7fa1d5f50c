#include "core/frames/frame_stream.hpp"

#include "core/error.hpp"
#include "core/frames/frame_link.hpp"

namespace syntony {

SlotRing::SlotRing(std::uint32_t depth, std::uint32_t slot_bytes)
    : depth_(depth), stride_((std::size_t{slot_bytes} + kAlignment - 1) / kAlignment * kAlignment) {}

void SlotRing::allocate() {
  memory_.reset(static_cast<std::byte*>(::operator new[](depth_ * stride_, std::align_val_t{kAlignment})));
}

FrameSender::FrameSender(FrameLink& link, StreamKey key, const StreamShape& shape)
    : link_(link),
      key_(key),
      depth_(shape.depth),
      slot_bytes_(shape.slot_bytes),
      slots_(shape.depth, shape.slot_bytes) {
  if (depth_ > kDeepest) throw Error(Error::Kind::invalid, "a stream has at most 64 slots");
}

std::byte* FrameSender::reserve(std::size_t bytes) {
  link_.require_open();
  require_fit(bytes, slot_bytes_, link_.rank());
  return full() ? nullptr : slots_[committed_];
}

void FrameSender::commit(const FrameHeader& header) {
  link_.require_open();
  if (full() || header.length > slot_bytes_) {
    throw Error(Error::Kind::invalid, "a frame of " + std::to_string(header.length) +
                                          " bytes was committed to a slot of " +
                                          std::to_string(full() ? 0 : slot_bytes_));
  }
  link_.post(key_, committed_, header, slots_[committed_]);
  ++committed_;
}

bool FrameSender::credit(std::uint64_t count) {
  if (count > committed_) return false;
  if (count > released_) released_ = count;
  return true;
}

FrameReceiver::FrameReceiver(FrameLink& link, StreamKey key, const StreamShape& shape)
    : link_(link), key_(key), slots_(shape.depth, shape.slot_bytes), frames_(shape.depth) {}

const FrameHeader* FrameReceiver::front() {
  const Frame& frame = frames_[released_ % frames_.size()];
  return frame.state == State::arrived ? &frame.header : nullptr;
}

const std::byte* FrameReceiver::payload() const { return slots_[released_]; }

void FrameReceiver::release() {
  frames_[released_ % frames_.size()].state = State::empty;
  ++released_;
  link_.owe_credit(*this);
}

std::byte* FrameReceiver::place(std::uint64_t number, const FrameHeader& header) {
  if (number < released_ || number - released_ >= frames_.size()) return nullptr;
  Frame& frame = frames_[number % frames_.size()];
  if (frame.state != State::empty) return nullptr;
  frame.header = header;
  frame.state = State::arriving;
  return slots_[number];
}

}  // namespace syntony
