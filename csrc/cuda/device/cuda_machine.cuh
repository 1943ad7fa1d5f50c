// The interpreter's Machine on a GPU.
#pragma once

#include "cuda/device/combine.hpp"

namespace syntony::cuda {

class CudaMachine {
 public:
  static constexpr std::uint32_t kThreadsOfALine = 8;  // of 16 bytes each

  __device__ explicit CudaMachine(const std::uint32_t* abort) : abort_(abort) {}

  __device__ static std::uint32_t thread() { return threadIdx.x; }
  __device__ static std::uint32_t threads() { return blockDim.x; }
  __device__ static void sync() { __syncthreads(); }

  __device__ static std::uint64_t acquire(const std::uint64_t* p) {
    std::uint64_t v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(__cvta_generic_to_global(p)) : "memory");
    return v;
  }
  __device__ static void release(std::uint64_t* p, std::uint64_t v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "l"(v) : "memory");
  }
  __device__ static std::uint64_t add(std::uint64_t* p, std::uint64_t n) {
    std::uint64_t old;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;"
                 : "=l"(old)
                 : "l"(__cvta_generic_to_global(p)), "l"(n)
                 : "memory");
    return old;
  }
  __device__ static std::uint32_t told(const std::uint32_t* p) {
    return *static_cast<const volatile std::uint32_t*>(p);
  }

  __device__ static Vector load(const std::byte* from) { return *reinterpret_cast<const Vector*>(from); }
  __device__ static void store(std::byte* to, const Vector& v) { *reinterpret_cast<Vector*>(to) = v; }

  // ll: the 8-byte words of a 16-byte access each arrive whole.
  __device__ static bool has_ll(const std::byte* line, std::uint32_t flag) {
    const Line loaded = load_line(line);
    return loaded.first >> 32 == flag && loaded.second >> 32 == flag;
  }
  __device__ std::uint64_t load_ll(const std::byte* line, std::uint32_t flag) const {
    for (std::uint32_t looks = 0;; ++looks) {
      const Line loaded = load_line(line);
      if (loaded.first >> 32 == flag && loaded.second >> 32 == flag) {
        return (loaded.first & 0xffffffffU) | loaded.second << 32;
      }
      if (stops(looks)) return 0;
    }
  }
  __device__ static void store_ll(std::byte* line, std::uint64_t word, std::uint32_t flag) {
    const std::uint64_t high = static_cast<std::uint64_t>(flag) << 32;
    store_line(line, {(word & 0xffffffffU) | high, word >> 32 | high});
  }

  // ll128: eight adjacent threads load or store a line with one instruction each; the eighth has the flag.
  __device__ static bool has_ll128(const std::byte* line, std::uint64_t flag) {
    return load_line(line + 112).second == flag;
  }
  __device__ void load_ll128(const std::byte* line, std::uint64_t flag, std::uint32_t first, std::uint64_t (&words)[2],
                             bool mine) const {
    const bool checks = mine && first == 14;
    for (std::uint32_t looks = 0;; ++looks) {
      const Line loaded = load_line(line + first * 8);
      words[0] = loaded.first;
      words[1] = loaded.second;
      const bool missing = checks && loaded.second != flag;
      if (!__any_sync(~0U, missing)) return;  // the whole warp retries, for all of its lines
      if (__any_sync(~0U, stops(looks))) return;
    }
  }
  __device__ static void store_ll128(std::byte* line, std::uint64_t flag, std::uint32_t first,
                                     const std::uint64_t (&words)[2]) {
    __syncwarp(0xffU << (threadIdx.x % 32 / 8 * 8));  // the eight stores become one of 128 bytes
    store_line(line + first * 8, {words[0], first == 14 ? flag : words[1]});
  }

  __device__ static std::uint64_t nanoseconds() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
  }
  /// Pauses briefly after a while without progress: other blocks on the same processor may have work.
  __device__ static void pause(std::uint32_t looks) {
    if (looks > 4096) __nanosleep(64);
  }

 private:
  struct Line {
    std::uint64_t first, second;
  };
  __device__ static Line load_line(const std::byte* from) {
    Line line;
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(line.first), "=l"(line.second)
                 : "l"(__cvta_generic_to_global(from))
                 : "memory");
    return line;
  }
  __device__ static void store_line(std::byte* to, Line line) {
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "l"(line.first),
                 "l"(line.second)
                 : "memory");
  }
  /// The sender of an awaited line is running, unless it was stopped.
  __device__ bool stops(std::uint32_t looks) const { return looks % 65536 == 65535 && told(abort_) != 0; }

  const std::uint32_t* abort_;
};

}  // namespace syntony::cuda
