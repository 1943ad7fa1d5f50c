// collectives/cuda/platform.cuh on threads of the host: what generated kernels ask of a GPU, from the C++ library.
//
// A block's threads share a std::barrier; flags are std::atomic_ref, so the thread sanitizer sees every race that the
// orders of platform.cuh would allow on a GPU.
#pragma once

#include <atomic>
#include <barrier>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>

#define __device__
#define __global__
#define __noinline__
#define __launch_bounds__(threads)

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }
using std::memcpy;

namespace syntony {

struct HostBlock {
  HostBlock(int number, int count) : index(number), threads(count), barrier(count) {}
  int index, threads;
  std::barrier<> barrier;
};
inline thread_local HostBlock* host_block = nullptr;
inline thread_local int host_thread = 0;

inline int thread() { return host_thread; }
inline int block() { return host_block->index; }
inline int block_threads() { return host_block->threads; }
inline void block_barrier() { host_block->barrier.arrive_and_wait(); }

inline unsigned long long acquire(const unsigned long long* flag) {
  return std::atomic_ref(*const_cast<unsigned long long*>(flag)).load(std::memory_order_acquire);
}
inline void release(unsigned long long* flag, unsigned long long value) {
  std::atomic_ref(*flag).store(value, std::memory_order_release);
}
inline unsigned long long add_one(unsigned long long* counter) {
  return std::atomic_ref(*counter).fetch_add(1, std::memory_order_acq_rel);
}
inline void set_once(unsigned long long* cell, unsigned long long value) {
  unsigned long long expected = 0;
  std::atomic_ref(*cell).compare_exchange_strong(expected, value);
}
inline unsigned long long nanoseconds() {
  return static_cast<unsigned long long>(std::chrono::steady_clock::now().time_since_epoch().count());
}
inline void pause() { std::this_thread::yield(); }

inline float half_to_float(unsigned short half) {
  _Float16 value;
  memcpy(&value, &half, sizeof value);
  return static_cast<float>(value);
}
inline unsigned short float_to_half(float value) {
  const auto half = static_cast<_Float16>(value);
  unsigned short bits;
  memcpy(&bits, &half, sizeof bits);
  return bits;
}

}  // namespace syntony
