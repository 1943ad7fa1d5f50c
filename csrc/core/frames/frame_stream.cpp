#include "core/frames/frame_stream.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/frames/frame_link.hpp"

namespace syntony {

void SlotRing::grow(Slot& slot, std::size_t bytes) {
  constexpr std::size_t kLeast = 64;
  const std::size_t room = std::max(std::min(std::bit_ceil(std::max(bytes, kLeast)), most_), bytes);
  Memory larger(static_cast<std::byte*>(::operator new[](room, std::align_val_t{kAlignment})));
  if (slot.memory) outgrown_.push_back(std::exchange(slot.memory, nullptr));
  slot.memory = std::move(larger);
  slot.bytes = room;
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
  if (full()) link_.look_for_credit(key_);
  if (full()) return nullptr;
  std::byte* const lent = link_.lent_room(key_, committed_);
  reserved_ = {lent != nullptr ? lent : slots_.room(committed_, bytes), bytes};
  return reserved_.data();
}

void FrameSender::commit(const FrameHeader& header) {
  link_.require_open();
  if (reserved_.data() == nullptr || header.length > reserved_.size()) {
    throw Error(Error::Kind::invalid, "a frame of " + std::to_string(header.length) +
                                          " bytes was committed to a slot of " +
                                          std::to_string(full() ? 0 : slot_bytes_) + ", or without room reserved");
  }
  link_.post(key_, committed_, header, reserved_.data());
  reserved_ = {};
  ++committed_;
}

bool FrameSender::send(const FrameHeader& header, const std::byte* payload) {
  std::byte* const slot = reserve(header.length);
  if (slot == nullptr) return false;
  link_.pass(key_, committed_++, header, payload, slot);
  reserved_ = {};
  return true;
}

std::uint64_t FrameSender::on_their_way() {
  link_.look_for_credit(key_);
  return committed_ - released_;
}

bool FrameSender::credit(std::uint64_t count) {
  if (count > committed_) return false;
  if (count > released_) released_ = count;
  return true;
}

FrameReceiver::FrameReceiver(FrameLink& link, StreamKey key, const StreamShape& shape)
    : link_(link),
      key_(key),
      slots_(shape.depth, shape.slot_bytes),
      frames_(shape.depth),
      // Operations of low priority count what is on its way (Group::advance).
      late_(shape.priority_of(key.window) == Priority::low ? 0
                                                           : shape.depth - std::min(shape.depth, StreamShape{}.depth)) {
}

const FrameHeader* FrameReceiver::front() {
  const Frame& frame = frames_[released_ % frames_.size()];
  if (frame.state == State::empty) link_.look_for_frame(key_);
  return frame.state == State::arrived ? &frame.header : nullptr;
}

const std::byte* FrameReceiver::payload() const {
  const std::byte* const elsewhere = frames_[released_ % frames_.size()].elsewhere;
  return elsewhere != nullptr ? elsewhere : slots_[released_];
}

void FrameReceiver::release() {
  constexpr std::uint32_t kShort = 32 * 1024;
  Frame& frame = frames_[released_ % frames_.size()];
  frame.state = State::empty;
  frame.elsewhere = nullptr;
  ++released_;
  // One of many: its sender may be short of slots.
  due_ |= frame.header.length > kShort && frames_[released_ % frames_.size()].state != State::empty;
  link_.owe_credit(*this);
}

std::byte* FrameReceiver::place(std::uint64_t number, const FrameHeader& header) {
  if (number < released_ || number - released_ >= frames_.size()) return nullptr;
  Frame& frame = frames_[number % frames_.size()];
  if (frame.state != State::empty) return nullptr;
  if (frame.elsewhere != nullptr && frame.header != header) frame.elsewhere = nullptr;
  frame.header = header;
  frame.state = State::arriving;
  return frame.elsewhere != nullptr ? frame.elsewhere : slots_.room(number, header.length);
}

std::byte* FrameReceiver::resume(std::uint64_t number, std::size_t offset) {
  if (number < released_ || number - released_ >= frames_.size()) return nullptr;
  const Frame& frame = frames_[number % frames_.size()];
  if (frame.state != State::arriving || offset > frame.header.length) return nullptr;
  return (frame.elsewhere != nullptr ? frame.elsewhere : slots_[number]) + offset;
}

void FrameReceiver::arrived(std::uint64_t number) {
  if (number < released_) return;
  Frame& frame = frames_[number % frames_.size()];
  if (frame.state == State::arriving) frame.state = State::arrived;
}

void FrameReceiver::interrupted(std::uint64_t number) {
  if (number < released_) return;
  Frame& frame = frames_[number % frames_.size()];
  if (frame.state == State::arriving) frame.state = State::empty;
}

bool FrameReceiver::has(std::uint64_t number) const {
  if (number < released_) return released_ - number <= frames_.size();
  return number - released_ < frames_.size() && frames_[number % frames_.size()].state == State::arrived;
}

std::byte* FrameReceiver::place_in_slot(std::uint64_t number) {
  Frame& frame = frames_[number % frames_.size()];
  frame.elsewhere = nullptr;
  return slots_.room(number, frame.header.length);
}

void FrameReceiver::expect(std::uint32_t ahead, const FrameHeader& header, std::byte* place) {
  if (ahead >= frames_.size() || !link_.redirects()) return;
  Frame& frame = frames_[(released_ + ahead) % frames_.size()];
  if (frame.state != State::empty) return;
  frame.header = header;
  frame.elsewhere = place;
}

void FrameReceiver::forget_places() {
  for (std::uint64_t number = released_; number < released_ + frames_.size(); ++number) {
    Frame& frame = frames_[number % frames_.size()];
    if (frame.elsewhere == nullptr) continue;
    if (frame.state != State::empty) {
      std::byte* const slot = slots_.room(number, frame.header.length);
      std::memcpy(slot, frame.elsewhere, frame.header.length);
      link_.redirect({frame.elsewhere, frame.header.length}, slot);
    }
    frame.elsewhere = nullptr;
  }
}

}  // namespace syntony
