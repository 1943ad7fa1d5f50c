#include "core/frames/frame_stream.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.hpp"
#include "core/frames/frame_link.hpp"

namespace syntony {

void SlotRing::borrow(Slot& slot) {
  if (lendable_.empty()) lendable_.emplace_back();
  slot.borrowed = std::move(lendable_.back());
  lendable_.pop_back();
}

void SlotRing::grow(Piece& piece, std::size_t bytes) {
  constexpr std::size_t kLeast = 64;
  const std::size_t room = std::max(std::min(std::bit_ceil(std::max(bytes, kLeast)), most_), bytes);
  Memory larger(static_cast<std::byte*>(::operator new[](room, std::align_val_t{kAlignment})));
  if (piece.memory) outgrown_.push_back(std::exchange(piece.memory, nullptr));
  piece = {.memory = std::move(larger), .bytes = room};
}

FrameSender::FrameSender(FrameLink& link, StreamKey key, const StreamShape& shape)
    : link_(link),
      key_(key),
      depth_(shape.depth),
      frames_(shape.frames()),
      slot_bytes_(shape.slot_bytes),
      slots_(shape) {
  if (frames_ > kMost) throw Error(Error::Kind::invalid, "a stream has at most 64 slots");
}

std::byte* FrameSender::reserve(std::size_t bytes) {
  link_.require_open();
  require_fit(bytes, slot_bytes_, link_.rank());
  if (full(bytes)) link_.look_for_credit(key_);
  if (full(bytes)) return nullptr;
  std::byte* const lent = link_.lent_room(key_, committed_);
  reserved_ = {lent != nullptr ? lent : slots_.room(committed_, bytes), bytes};
  return reserved_.data();
}

void FrameSender::commit(const FrameHeader& header) {
  link_.require_open();
  if (reserved_.data() == nullptr || header.length > reserved_.size()) {
    throw Error(Error::Kind::invalid,
                "a frame of " + std::to_string(header.length) + " bytes was committed to a slot of " +
                    std::to_string(full(header.length) ? 0 : slot_bytes_) + ", or without room reserved");
  }
  link_.post(key_, committed_, header, reserved_.data());
  fill(header.length);
}

bool FrameSender::send(const FrameHeader& header, const std::byte* payload) {
  std::byte* const slot = reserve(header.length);
  if (slot == nullptr) return false;
  link_.pass(key_, fill(header.length), header, payload, slot);
  return true;
}

std::uint64_t FrameSender::fill(std::size_t bytes) {
  reserved_ = {};
  if (bytes > StreamShape::kShortFrame) long_ |= mark(committed_);
  return committed_++;
}

std::uint64_t FrameSender::on_their_way() {
  link_.look_for_credit(key_);
  return committed_ - released_;
}

bool FrameSender::credit(std::uint64_t count) {
  if (count > committed_) return false;
  for (; released_ < count; ++released_) {
    long_ &= ~mark(released_);
    slots_.vacate(released_);
  }
  return true;
}

FrameReceiver::FrameReceiver(FrameLink& link, StreamKey key, const StreamShape& shape)
    : link_(link),
      key_(key),
      slots_(shape),
      frames_(shape.frames()),
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
  Frame& frame = frames_[released_ % frames_.size()];
  frame.state = State::empty;
  frame.elsewhere = nullptr;
  slots_.vacate(released_++);
  // One of many: its sender may be short of slots. A report for each costs a packet, which two fast hosts feel.
  due_ |= owed() >= late_ && frame.header.length > StreamShape::kShortFrame &&
          frames_[released_ % frames_.size()].state != State::empty;
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
