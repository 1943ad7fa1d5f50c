// Memory of the late device: host memory, reused like a real device's caching allocator does. A freed block is
// immediately available for later work in its own stream, and is overwritten there; only other streams on which it was
// recorded are waited for. So using freed memory, or memory that a stream still needs, yields wrong numbers.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "late_streams.hpp"

namespace late {

struct Block {
  void* memory = nullptr;
  std::size_t bytes = 0;
  std::int64_t home = 0;             // the stream that allocated it
  std::set<std::int64_t> visited{};  // others that use it
};

class Memory {
 public:
  Block* take(std::size_t asked) {
    const std::size_t bytes = (asked + 63) / 64 * 64;
    const std::scoped_lock lock(mutex_);
    std::erase_if(leaving_, [&](Leaving& leaving) {
      for (const Event& event : leaving.events) {
        if (!event.query()) return false;
      }
      put_back(leaving.block);
      return true;
    });
    auto& free = free_[{current_stream, bytes}];
    if (free.empty()) return new Block{std::aligned_alloc(64, bytes), bytes, current_stream};
    Block* const block = free.back();
    free.pop_back();
    return block;
  }
  void give_back(Block* block) {
    const std::scoped_lock lock(mutex_);
    if (block->visited.empty()) return put_back(block);
    Leaving leaving{block, {}};
    for (const std::int64_t visited : std::exchange(block->visited, {})) {
      leaving.events.emplace_back().record(stream(visited));
    }
    leaving_.push_back(std::move(leaving));
  }
  void record(Block* block, std::int64_t on) {
    const std::scoped_lock lock(mutex_);
    if (on != block->home) block->visited.insert(on);
  }

 private:
  struct Leaving {
    Block* block;
    std::vector<Event> events;
  };
  void put_back(Block* block) {
    stream(block->home).put([memory = block->memory, bytes = block->bytes] { std::memset(memory, 0xA5, bytes); });
    free_[{block->home, block->bytes}].push_back(block);
  }

  std::mutex mutex_;  // guards the rest
  std::map<std::pair<std::int64_t, std::size_t>, std::vector<Block*>> free_;
  std::vector<Leaving> leaving_;
};

inline Memory& memory() {
  static auto* const made = new Memory();
  return *made;
}

/// Host memory that copies may use after their caller has gone on.
class Pinned {
 public:
  void* take(std::size_t bytes) {
    void* const memory = std::malloc(bytes);
    const std::scoped_lock lock(mutex_);
    blocks_[memory] = bytes;
    return memory;
  }
  void give_back(void* memory) {
    const std::scoped_lock lock(mutex_);
    std::memset(memory, 0x5A, blocks_[memory]);
    blocks_.erase(memory);
    std::free(memory);
  }
  bool holds(const void* address) {
    const std::scoped_lock lock(mutex_);
    auto found = blocks_.upper_bound(const_cast<void*>(address));
    if (found == blocks_.begin()) return false;
    --found;
    return static_cast<const char*>(address) < static_cast<const char*>(found->first) + found->second;
  }

 private:
  std::mutex mutex_;  // guards the next
  std::map<void*, std::size_t> blocks_;
};

inline Pinned& pinned() {
  static auto* const made = new Pinned();
  return *made;
}

}  // namespace late
