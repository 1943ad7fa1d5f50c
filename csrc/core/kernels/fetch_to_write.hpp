// Prefetches for writing a cache line that a peer may have read meanwhile.
#pragma once

namespace syntony {

/// Taking ownership back takes as long as fetching the line, and without a prefetch a store waits for it.
inline void fetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace syntony
