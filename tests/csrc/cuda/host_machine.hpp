// A GPU made of threads: every thread of a thread block is a host thread, so that the thread sanitizer sees what a GPU
// would do. Flags are std::atomic_ref, the block barrier is std::barrier, and a line of ll128 belongs to one thread.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "cuda/device/interpreter.hpp"

namespace syntony::cuda {

/// A copy engine whose stores are as late as possible, and whose loads are, every other time, as early as possible:
/// stages reused too soon then hold wrong bytes.
class HostBulk {
 public:
  void load(std::uint32_t stage, const std::byte* from, std::uint32_t bytes) {
    loads_[stage] = {stages_[stage], from, bytes};
    if (++loaded_ % 2 == 0) happen(loads_[stage]);
  }
  void loaded(std::uint32_t stage) { happen(loads_[stage]); }
  void store(std::byte* to, std::uint32_t stage, std::uint32_t bytes) {
    stores_.push_back({to, stages_[stage], bytes});
  }
  void commit() {
    before_ = last_;
    last_ = stores_.size();
  }
  void read_but_one() { happen_until(before_); }
  void end() {
    happen_until(last_);
    stores_.clear();
    done_ = before_ = last_ = 0;
  }

 private:
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint32_t bytes = 0;
  };
  static void happen(Copy& copy) {
    if (copy.bytes > 0) std::memcpy(copy.to, copy.from, copy.bytes);
    copy.bytes = 0;
  }
  void happen_until(std::size_t end) {
    for (; done_ < end; ++done_) happen(stores_[done_]);
  }

  alignas(16) std::byte stages_[BulkStages::kStages][BulkStages::kBytes];
  Copy loads_[BulkStages::kStages];
  std::vector<Copy> stores_;
  std::size_t done_ = 0, before_ = 0, last_ = 0;  // of the stores: happened; in groups but the last; in all groups
  std::uint32_t loaded_ = 0;
};

class HostMachine {
 public:
  static constexpr std::uint32_t kThreadsOfALine = 1;

  HostMachine(std::uint32_t thread, std::uint32_t threads, std::barrier<>& barrier, HostBulk* bulk = nullptr)
      : thread_(thread), threads_(threads), barrier_(barrier), bulk_(bulk) {}

  [[nodiscard]] std::uint32_t thread() const { return thread_; }
  [[nodiscard]] std::uint32_t threads() const { return threads_; }
  void sync() const { barrier_.arrive_and_wait(); }

  static std::uint64_t acquire(std::uint64_t* p) { return std::atomic_ref(*p).load(std::memory_order_acquire); }
  static void release(std::uint64_t* p, std::uint64_t v) { std::atomic_ref(*p).store(v, std::memory_order_release); }
  static std::uint64_t add(std::uint64_t* p, std::uint64_t n) {
    return std::atomic_ref(*p).fetch_add(n, std::memory_order_acq_rel);
  }
  static std::uint32_t told(const std::uint32_t* p) {
    return std::atomic_ref(*const_cast<std::uint32_t*>(p)).load(std::memory_order_relaxed);
  }

  static Vector load(const std::byte* from) {
    Vector v;
    std::memcpy(&v, std::assume_aligned<16>(from), sizeof v);
    return v;
  }
  static void store(std::byte* to, const Vector& v) { std::memcpy(std::assume_aligned<16>(to), &v, sizeof v); }

  static bool has_ll(const std::byte* line, std::uint32_t flag) {
    return half(line, 0) >> 32 == flag && half(line, 1) >> 32 == flag;
  }
  static std::uint64_t load_ll(const std::byte* line, std::uint32_t flag) {
    while (!has_ll(line, flag)) std::this_thread::yield();
    return (half(line, 0) & 0xffffffffU) | half(line, 1) << 32;
  }
  static void store_ll(std::byte* line, std::uint64_t word, std::uint32_t flag) {
    const std::uint64_t high = std::uint64_t{flag} << 32;
    auto* const halves = reinterpret_cast<std::uint64_t*>(line);
    std::atomic_ref(halves[0]).store((word & 0xffffffffU) | high, std::memory_order_relaxed);
    std::atomic_ref(halves[1]).store(word >> 32 | high, std::memory_order_relaxed);
  }

  static bool has_ll128(const std::byte* line, std::uint64_t flag) {
    return acquire(reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(line)) + 15) == flag;
  }
  static void load_ll128(const std::byte* line, std::uint64_t flag, std::uint32_t, std::uint64_t (&words)[16],
                         bool mine) {
    if (!mine) return;
    while (!has_ll128(line, flag)) std::this_thread::yield();
    std::memcpy(words, line, 15 * sizeof words[0]);
  }
  static void store_ll128(std::byte* line, std::uint64_t flag, std::uint32_t, const std::uint64_t (&words)[16]) {
    std::memcpy(line, words, 15 * sizeof words[0]);
    release(reinterpret_cast<std::uint64_t*>(line) + 15, flag);
  }

  [[nodiscard]] bool bulk() const { return bulk_ != nullptr; }
  static void bulk_begin() {}
  void bulk_load(std::uint32_t stage, const std::byte* from, std::uint32_t bytes) const {
    bulk_->load(stage, from, bytes);
  }
  void bulk_loaded(std::uint32_t stage) const { bulk_->loaded(stage); }
  void bulk_store(std::byte* to, std::uint32_t stage, std::uint32_t bytes) const { bulk_->store(to, stage, bytes); }
  void bulk_commit() const { bulk_->commit(); }
  void bulk_read_but_one() const { bulk_->read_but_one(); }
  void bulk_end() const { bulk_->end(); }

  static std::uint64_t nanoseconds() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  static void pause(std::uint32_t) { std::this_thread::yield(); }

 private:
  static std::uint64_t half(const std::byte* line, int i) {
    auto* const halves = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(line));
    return std::atomic_ref(halves[i]).load(std::memory_order_relaxed);
  }

  std::uint32_t thread_, threads_;
  std::barrier<>& barrier_;
  HostBulk* bulk_;
};

}  // namespace syntony::cuda
