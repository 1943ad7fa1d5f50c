// Asks for a cache line that will be written soon, and that a peer may have read meanwhile.
#pragma once

namespace syntony {

/// To take it back takes as long as to fetch it; a store waits for that where nobody has asked before.
inline void fetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace syntony
