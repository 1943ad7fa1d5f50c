// Slots: where an aggregator keeps the chunks of one sum until all have come, and the sum until all have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace syntony {

/// One chunk of one operation: room for every worker's part, one after another, and for the sum.
struct Slot {
  std::vector<std::byte> parts;
  std::vector<std::byte> sum;
  std::size_t stride = 0;
  std::size_t arrived = 0;

  [[nodiscard]] std::byte* part(std::size_t rank) { return parts.data() + rank * stride; }
};

/// A fixed number of slots. A slot is free again when the last that holds it lets go: its job, the workers that
/// receive into it, the frames that still carry its sum.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  SlotPool(std::size_t slots, std::size_t capacity) : left_(slots), stride_((capacity + 63) / 64 * 64) {}

  [[nodiscard]] std::size_t left() const { return left_; }

  /// A slot for `ranks` workers; empty when none is left.
  [[nodiscard]] std::shared_ptr<Slot> take(std::size_t ranks) {
    if (left_ == 0) return nullptr;
    --left_;
    std::unique_ptr<Slot> slot = idle_.empty() ? std::make_unique<Slot>() : std::move(idle_.back());
    if (!idle_.empty()) idle_.pop_back();
    slot->stride = stride_;
    slot->arrived = 0;
    if (slot->parts.size() < ranks * stride_) slot->parts.resize(ranks * stride_);
    slot->sum.resize(stride_);
    return {slot.release(), [pool = shared_from_this()](Slot* back) {
              pool->idle_.emplace_back(back);
              ++pool->left_;
            }};
  }

 private:
  std::size_t left_;
  std::size_t stride_;
  std::vector<std::unique_ptr<Slot>> idle_;  // memory that was used before
};

}  // namespace syntony
