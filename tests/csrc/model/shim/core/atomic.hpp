// Replaces csrc/core/atomic.hpp: the same names, on the machine of weak memory order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>

#include "model/machine.hpp"

namespace syntony {

/// Stores only its initial value: the machine keeps all others, and none of them outlives a run.
template <typename T>
class Atomic {
 public:
  static constexpr bool is_always_lock_free = true;
  Atomic() = default;
  Atomic(T value) : initial_(value) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(model::Order order, const model::Where& where = model::Where::current()) const {
    return static_cast<T>(model::load(this, initial(), order, where));
  }
  void store(T value, model::Order order, const model::Where& where = model::Where::current()) {
    model::store(this, initial(), static_cast<std::uint64_t>(value), order, where);
  }
  bool compare_exchange_strong(T& expected, T value, model::Order order,
                               const model::Where& where = model::Where::current()) {
    auto found = static_cast<std::uint64_t>(expected);
    const bool done = model::exchange(this, initial(), found, static_cast<std::uint64_t>(value), order, where);
    expected = static_cast<T>(found);
    return done;
  }

 private:
  [[nodiscard]] std::uint64_t initial() const { return static_cast<std::uint64_t>(initial_); }
  T initial_{};
};

inline void fence(model::Order order, const model::Where& where = model::Where::current()) {
  model::pass_fence(order, where);
}

/// Two concurrent accesses are a fault.
template <typename T>
class Published {
 public:
  Published& operator=(const T& value) {
    model::writes(this, sizeof(T));
    value_ = value;
    return *this;
  }
  operator const T&() const { return *operator&(); }
  const T* operator&() const {
    model::reads(this);
    return &value_;
  }

 private:
  T value_;
};

/// Two halves that can be torn apart stand for the many words of the original.
template <std::size_t kBytes>
class RacingBytes {
 public:
  void write(std::span<const std::byte> bytes) {
    const std::uint64_t number =
        model::number_of(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    for (Half& half : halves_) half.store(number, model::Order::relaxed);
  }
  void read(std::span<std::byte> bytes) const {
    std::ranges::fill(bytes, std::byte{0});
    std::size_t from = 0;
    for (const Half& half : halves_) {
      const std::string& all = model::bytes_of(half.load(model::Order::relaxed));
      const std::size_t to = from == 0 ? bytes.size() / 2 : bytes.size();
      if (from < all.size()) std::memcpy(bytes.data() + from, all.data() + from, std::min(to, all.size()) - from);
      from = to;
    }
  }
  template <typename T>
  void assign(const T& value) {
    write(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  [[nodiscard]] T as() const {
    T value;
    read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

 private:
  using Half = Atomic<std::uint64_t>;
  static_assert(kBytes >= 2 * sizeof(Half));
  std::array<Half, 2> halves_;
  [[maybe_unused]] std::array<std::byte, kBytes - 2 * sizeof(Half)> rest_;
};

}  // namespace syntony
