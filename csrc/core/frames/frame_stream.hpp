// The two ends of a stream over a wire between hosts. Both have slots for as many frames as it may hold
// (StreamShape::frames()); frame number n is in slot n mod that at both:
//
//      sender                                        receiver
//      committed - released <= frames,    ======>    numbers in [released, released + frames) may arrive,
//      at most `depth` of them long;                 in any order over several paths: its slot is where a
//      a slot is free again once the      <credit    frame waits for its turn
//      receiver has released its frame
//
// Not every payload passes through its slot, but each occupies one: send() passes the wire what it accepts immediately,
// in place, and copies the rest to the slot; an expected frame arrives in place if the wire redirects(). A wire to a
// peer that can read our memory lends the sender its slots (lent_room()), and the receiver reads those and leaves its
// credits there.
//
// A credit is the number of frames released so far, so it may arrive late, twice or in any order. It may wait for a
// frame that goes the same way, as long as the sender has as many slots as Programs count on, and one more if a long
// frame is followed by another. A slot takes as much memory as the largest frame that it has held, rounded up to a
// power of two. Where a stream may hold more than `depth` frames, the long ones take turns with pieces of memory, last
// used first used again, so that those remain in the caches.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "core/transport.hpp"

namespace syntony {

class FrameLink;

struct StreamKey {
  std::uint32_t channel = 0;
  std::uint32_t window = 0;
};

/// The slots of one end of a stream: pieces of memory of up to `slot_bytes`, each aligned to a cache line.
class SlotRing {
 public:
  explicit SlotRing(const StreamShape& shape)
      : slots_(shape.frames()),
        most_(shape.slot_bytes),
        own_(shape.frames() > shape.depth ? StreamShape::kShortFrame : shape.slot_bytes) {}
  /// The memory of an unused slot, for `bytes` of at most `slot_bytes`; its previous contents may be lost.
  [[nodiscard]] std::byte* room(std::uint64_t number, std::size_t bytes) {
    Slot& slot = slots_[number % slots_.size()];
    if (bytes > own_ && !slot.borrowed.memory) borrow(slot);
    Piece& piece = slot.borrowed.memory ? slot.borrowed : slot.own;
    if (piece.bytes < bytes || piece.bytes == 0) grow(piece, bytes);
    return piece.memory.get();
  }
  [[nodiscard]] std::byte* operator[](std::uint64_t number) const {
    const Slot& slot = slots_[number % slots_.size()];
    return (slot.borrowed.memory ? slot.borrowed : slot.own).memory.get();
  }
  /// The slot is unused again.
  void vacate(std::uint64_t number) {
    Piece& borrowed = slots_[number % slots_.size()].borrowed;
    if (borrowed.memory) lendable_.push_back(std::exchange(borrowed, {}));
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kAlignment}); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  struct Piece {
    Memory memory;
    std::size_t bytes = 0;
  };
  struct Slot {
    Piece own;
    Piece borrowed;  // while it holds a frame of more than own_ bytes
  };
  void borrow(Slot& slot);
  void grow(Piece& piece, std::size_t bytes);

  std::vector<Slot> slots_;
  std::vector<Piece> lendable_;
  /// In total smaller than their replacements. Kept, because a peer may release a slot, by mistake or not, that a wire
  /// still reads.
  std::vector<Memory> outgrown_;
  std::size_t most_;
  std::size_t own_;  // the most of a slot's own memory
};

class FrameSender final : public Sender {
 public:
  FrameSender(FrameLink& link, StreamKey key, const StreamShape& shape);

  /// Throws Error(dead) if the connection is gone, because the frame could not be delivered.
  [[nodiscard]] std::byte* reserve(std::size_t bytes) override;
  /// Queues the frame; progress() or wake() hands it to the wire. Throws like reserve(), and Error(invalid) for a
  /// length beyond the slot or without a reserved slot.
  void commit(const FrameHeader& header) override;
  [[nodiscard]] bool send(const FrameHeader& header, const std::byte* payload) override;
  [[nodiscard]] std::uint64_t on_their_way() override;

  /// The receiver has released `count` frames so far. False if that is impossible.
  [[nodiscard]] bool credit(std::uint64_t count);
  [[nodiscard]] std::uint64_t released() const { return released_; }
  /// The wire still reads the slot of frame `number`, whatever the receiver says, until it lets go.
  void hold(std::uint64_t number) { held_ |= mark(number); }
  void let_go(std::uint64_t number) { held_ &= ~mark(number); }

 private:
  static constexpr std::uint32_t kMost = 64;  // bits of held_ and long_
  [[nodiscard]] std::uint64_t mark(std::uint64_t number) const { return std::uint64_t{1} << number % frames_; }
  /// No room for a frame of `bytes`.
  [[nodiscard]] bool full(std::size_t bytes) const {
    return committed_ - released_ == frames_ || (held_ & mark(committed_)) != 0 ||
           (bytes > StreamShape::kShortFrame && std::popcount(long_) == static_cast<int>(depth_));
  }
  /// The reserved slot holds a frame of `bytes` from now on. Returns its number.
  std::uint64_t fill(std::size_t bytes);

  FrameLink& link_;
  StreamKey key_;
  std::uint32_t depth_;
  std::uint32_t frames_;
  std::uint32_t slot_bytes_;
  SlotRing slots_;
  std::span<std::byte> reserved_;  // the next slot, since reserve()
  std::uint64_t committed_ = 0;
  std::uint64_t released_ = 0;
  std::uint64_t held_ = 0;  // one bit per slot
  std::uint64_t long_ = 0;  // those with frames longer than kShortFrame
};

class FrameReceiver final : public Receiver {
 public:
  FrameReceiver(FrameLink& link, StreamKey key, const StreamShape& shape);

  [[nodiscard]] const FrameHeader* front() override;
  [[nodiscard]] const std::byte* payload() const override;
  void release() override;
  void expect(std::uint32_t ahead, const FrameHeader& header, std::byte* place) override;
  void forget_places() override;

  /// Where the payload of frame `number` belongs; nullptr if the sender had no slot for it.
  [[nodiscard]] std::byte* place(std::uint64_t number, const FrameHeader& header);
  /// Where the payload of a placed frame goes from byte `offset` on; nullptr if no such frame is arriving.
  [[nodiscard]] std::byte* resume(std::uint64_t number, std::size_t offset);
  /// The slot of a placed frame, where its payload will arrive after all.
  [[nodiscard]] std::byte* place_in_slot(std::uint64_t number);
  /// The payload of a placed frame is not copied: it is read here, until it is released.
  void lies_at(std::uint64_t number, std::byte* where) { frames_[number % frames_.size()].elsewhere = where; }
  /// Nothing for a frame that was discarded because it has arrived before.
  void arrived(std::uint64_t number);
  /// A frame that was arriving will arrive again from its beginning.
  void interrupted(std::uint64_t number);
  /// True if the frame has arrived, now or as one of the last released: the sender may not know it yet.
  [[nodiscard]] bool has(std::uint64_t number) const;
  [[nodiscard]] StreamKey key() const { return key_; }
  [[nodiscard]] std::uint64_t released() const { return released_; }
  /// Frames released but not yet reported to the sender.
  [[nodiscard]] std::uint64_t owed() const { return released_ - told_; }
  /// True if the sender may need this report soon.
  [[nodiscard]] bool due() const { return due_ || owed() > late_; }
  void forget_told() {
    told_ = 0;
    due_ = true;
  }
  /// Reports the number of frames released so far to the sender.
  [[nodiscard]] std::uint64_t tell() {
    due_ = false;
    return told_ = released_;
  }

  bool owes_credit = false;  // set by the link: this stream is in its list of those that owe one

 private:
  enum class State : std::uint8_t { empty, arriving, arrived };
  struct Frame {
    FrameHeader header;  // the expected one, until a frame has arrived
    State state = State::empty;
    std::byte* elsewhere = nullptr;  // where its payload is expected, or is; null: in its slot
  };

  FrameLink& link_;
  StreamKey key_;
  SlotRing slots_;
  std::vector<Frame> frames_;
  std::uint64_t released_ = 0;
  std::uint64_t told_ = 0;
  std::uint64_t late_;  // reports that may wait
  bool due_ = false;
};

}  // namespace syntony
