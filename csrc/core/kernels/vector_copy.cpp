#include "core/kernels/vector_copy.hpp"

#include <cstring>

#include "core/kernels/fetch_to_write.hpp"
#include "core/sizes.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace syntony {
namespace {

constexpr std::size_t kShort = 2048;         // up to here memcpy uses vector registers, too,
constexpr std::size_t kShortPast = 512;      // but goes through the caches
constexpr std::size_t kShortPaged = 16_KiB;  // below, a copy is over before prefetchers have found its streams
constexpr std::size_t kManyPages = 64_KiB;   // from here on four pages at a time, else two

#if defined(__x86_64__)
constexpr std::size_t kBlock = 256;
constexpr std::size_t kAhead = kPage;

// With `kPast` the stores bypass the caches, and `to` begins at a line. Then nothing hides the latency of loads, and
// the hardware prefetchers stop at page boundaries: prefetching a page ahead gives 9.8 instead of 8.5 GB/s (32 MiB, two
// at once).

[[gnu::always_inline]] inline void fetch_ahead(const std::byte* from, std::size_t at, std::size_t bytes) {
  if (at + kAhead + kBlock > bytes) return;
  for (std::size_t line = 0; line < kBlock; line += kCacheLine) __builtin_prefetch(from + at + kAhead + line);
}

// Lines that a peer has read must be taken back before they are written, and stores would wait for one after another.
// Only within the copy: the lines behind it may belong to others. 128 and 256 KiB to each of two ranks: 8 to 10 %
// (all_gather 23 -> 21 and 45 -> 41 us, all_to_all 23.5 -> 21 and 49 -> 45).
constexpr std::size_t kAheadToWrite = 48 * kCacheLine;
constexpr std::size_t kPageAhead = 8 * kCacheLine;  // in each of several pages

[[gnu::always_inline]] inline void fetch_ahead_to_write(std::byte* to, std::size_t at, std::size_t bytes) {
  if (at + kAheadToWrite + kBlock > bytes) return;
  for (std::size_t line = 0; line < kBlock; line += kCacheLine) fetch_to_write(to + at + kAheadToWrite + line);
}

template <bool kPast>
__attribute__((target("avx512f"))) void blocks_avx512(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto store = [](std::byte* at, __m512i line) __attribute__((target("avx512f"), always_inline)) {
    kPast ? _mm512_stream_si512(reinterpret_cast<__m512i*>(at), line) : _mm512_storeu_si512(at, line);
  };
  for (std::size_t at = 0; at < bytes; at += kBlock) {
    kPast ? fetch_ahead(from, at, bytes) : fetch_ahead_to_write(to, at, bytes);
    const __m512i a = _mm512_loadu_si512(from + at);
    const __m512i b = _mm512_loadu_si512(from + at + 64);
    const __m512i c = _mm512_loadu_si512(from + at + 128);
    const __m512i d = _mm512_loadu_si512(from + at + 192);
    store(to + at, a);
    store(to + at + 64, b);
    store(to + at + 128, c);
    store(to + at + 192, d);
  }
  if (kPast) _mm_sfence();
}

template <bool kPast>
__attribute__((target("avx2"))) void blocks_avx2(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto store = [](__m256i* at, __m256i half) __attribute__((target("avx2"), always_inline)) {
    kPast ? _mm256_stream_si256(at, half) : _mm256_storeu_si256(at, half);
  };
  for (std::size_t at = 0; at < bytes; at += kBlock / 2) {
    if (at % kBlock == 0) kPast ? fetch_ahead(from, at, bytes) : fetch_ahead_to_write(to, at, bytes);
    const auto* const source = reinterpret_cast<const __m256i*>(from + at);
    auto* const target = reinterpret_cast<__m256i*>(to + at);
    const __m256i a = _mm256_loadu_si256(source);
    const __m256i b = _mm256_loadu_si256(source + 1);
    const __m256i c = _mm256_loadu_si256(source + 2);
    const __m256i d = _mm256_loadu_si256(source + 3);
    store(target, a);
    store(target + 1, b);
    store(target + 2, c);
    store(target + 3, d);
  }
  if (kPast) _mm_sfence();
}

/// Where to write next, some lines ahead in each of the pages, past their end in the next ones.
template <std::size_t kPages>
[[gnu::always_inline]] inline void fetch_pages_to_write(std::byte* to, std::size_t at, std::size_t left) {
  std::size_t next = at + kPageAhead;
  if (next >= kPage) next += (kPages - 1) * kPage;
  if (next + (kPages - 1) * kPage >= left) return;
  for (std::size_t page = 0; page < kPages; ++page) fetch_to_write(to + next + page * kPage);
}

template <std::size_t kPages, bool kToPeers>
__attribute__((target("avx512f"))) void pages_avx512(std::byte* to, const std::byte* from, std::size_t left) {
  for (std::size_t at = 0; at < kPage; at += kCacheLine) {
    if (kToPeers) fetch_pages_to_write<kPages>(to, at, left);
    __m512i lines[kPages];
    for (std::size_t page = 0; page < kPages; ++page) lines[page] = _mm512_loadu_si512(from + page * kPage + at);
    for (std::size_t page = 0; page < kPages; ++page) _mm512_storeu_si512(to + page * kPage + at, lines[page]);
  }
}

template <std::size_t kPages, bool kToPeers>
__attribute__((target("avx2"))) void pages_avx2(std::byte* to, const std::byte* from, std::size_t left) {
  for (std::size_t at = 0; at < kPage; at += sizeof(__m256i)) {
    if (kToPeers && at % kCacheLine == 0) fetch_pages_to_write<kPages>(to, at, left);
    __m256i halves[kPages];
    for (std::size_t page = 0; page < kPages; ++page) {
      halves[page] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + page * kPage + at));
    }
    for (std::size_t page = 0; page < kPages; ++page) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + page * kPage + at), halves[page]);
    }
  }
}

/// Copies whole groups of pages and returns the number of bytes copied.
template <std::size_t kPages, bool kToPeers>
std::size_t copy_pages(std::byte* to, const std::byte* from, std::size_t bytes) {
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  if (!avx512 && __builtin_cpu_supports("avx2") == 0) return 0;
  constexpr std::size_t kGroup = kPages * kPage;
  const std::size_t whole = bytes / kGroup * kGroup;
  for (std::size_t at = 0; at < whole; at += kGroup)
    (avx512 ? pages_avx512<kPages, kToPeers> : pages_avx2<kPages, kToPeers>)(to + at, from + at, whole - at);
  return whole;
}

/// Copies whole blocks (or everything) and returns the number of bytes copied.
template <bool kPast>
std::size_t copy_blocks(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (!kPast && copies_by_string()) {
    std::size_t left = bytes;
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(left) : : "memory");
    return bytes;
  }
  const std::size_t whole = bytes / kBlock * kBlock;
  if (__builtin_cpu_supports("avx512f") != 0) {
    blocks_avx512<kPast>(to, from, whole);
  } else if (__builtin_cpu_supports("avx2") != 0) {
    blocks_avx2<kPast>(to, from, whole);
  } else {
    return 0;
  }
  return whole;
}
#else
template <std::size_t kPages, bool kToPeers>
std::size_t copy_pages(std::byte* /*to*/, const std::byte* /*from*/, std::size_t /*bytes*/) {
  return 0;
}
template <bool kPast>
std::size_t copy_blocks(std::byte* /*to*/, const std::byte* /*from*/, std::size_t /*bytes*/) {
  return 0;
}
#endif

/// Like memcpy, but copies the whole blocks from the first line of `to` on by registers. Only avoiding stores that
/// straddle lines matters, so the first bytes are copied separately.
template <bool kPast>
void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  if (bytes > (kPast ? kShortPast : kShort)) {
    done = (kCacheLine - reinterpret_cast<std::size_t>(to) % kCacheLine) % kCacheLine;
    std::memcpy(to, from, done);
    done += copy_blocks<kPast>(to + done, from + done, bytes - done);
  }
  std::memcpy(to + done, from + done, bytes - done);
}

/// `kToPeers`: lines that peers have read are taken back ahead.
template <bool kToPeers>
void copy_paged(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
  if (bytes >= kShortPaged) {
    done = (kCacheLine - reinterpret_cast<std::size_t>(to) % kCacheLine) % kCacheLine;
    std::memcpy(to, from, done);
    const auto pages = bytes >= kManyPages ? copy_pages<4, kToPeers> : copy_pages<2, kToPeers>;
    done += pages(to + done, from + done, bytes - done);
  }
  vector_copy(to + done, from + done, bytes - done);
}

}  // namespace

// AMD's string instruction starts fast since Zen 3. It takes over lines that it will fully write without reading them:
// data that a peer has read before is overwritten in less than half the time (Zen 5, 128 KiB: 1.7 instead of 3.9 us),
// and nothing is slower.
bool copies_by_string() {
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  static const bool best = [] {
    constexpr unsigned kFastShortMove = 1U << 4U;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_is("amd") != 0 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
           (edx & kFastShortMove) != 0;
  }();
  return best;
#else
  return false;  // sanitizers see only compiler-generated instructions
#endif
}

bool lines_migrate() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

void vector_copy(std::byte* to, const std::byte* from, std::size_t bytes) { copy<false>(to, from, bytes); }

void paged_copy(std::byte* to, const std::byte* from, std::size_t bytes) { copy_paged<false>(to, from, bytes); }

void paged_copy_to_peers(std::byte* to, const std::byte* from, std::size_t bytes) { copy_paged<true>(to, from, bytes); }

void streaming_copy(std::byte* to, const std::byte* from, std::size_t bytes) { copy<true>(to, from, bytes); }

}  // namespace syntony
