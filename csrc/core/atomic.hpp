// Lock-free data shared by ranks and threads. tests/csrc/model has a header of the same name that runs the same sources
// on a simulated weakly ordered memory and explores every behaviour that memory allows.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace syntony {

template <typename T>
using Atomic = std::atomic<T>;

inline void fence(std::memory_order order) { std::atomic_thread_fence(order); }

/// Plain data guarded by an Atomic that publishes it: never read while another thread writes it.
template <typename T>
using Published = T;

/// Bytes that may be overwritten while they are being read. The reader checks a version stored beside them to tell
/// whether what it read is consistent (a sequence lock). Zeroed memory is a valid initial state.
template <std::size_t kBytes>
class RacingBytes {
 public:
  /// At most kBytes.
  void write(std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(Word)) {
      Word word = 0;
      std::memcpy(&word, bytes.data() + i, std::min(sizeof(Word), bytes.size() - i));
      words_[i / sizeof(Word)].store(word, std::memory_order_relaxed);
    }
  }
  void read(std::span<std::byte> bytes) const {
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(Word)) {
      const Word word = words_[i / sizeof(Word)].load(std::memory_order_relaxed);
      std::memcpy(bytes.data() + i, &word, std::min(sizeof(Word), bytes.size() - i));
    }
  }
  template <typename T>
  void assign(const T& value) {
    static_assert(sizeof(T) <= kBytes && std::is_trivially_copyable_v<T>);
    write(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  [[nodiscard]] T as() const {
    static_assert(sizeof(T) <= kBytes && std::is_trivially_copyable_v<T>);
    T value;
    read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

 private:
  using Word = std::uint64_t;
  std::array<std::atomic<Word>, (kBytes + sizeof(Word) - 1) / sizeof(Word)> words_{};
};

}  // namespace syntony
