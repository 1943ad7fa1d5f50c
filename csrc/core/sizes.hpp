// Sizes in bytes: 64_KiB, 2_MiB, and the units in which processors move memory.
#pragma once

#include <cstddef>

namespace syntony {

consteval std::size_t operator""_KiB(unsigned long long count) { return static_cast<std::size_t>(count) << 10U; }
consteval std::size_t operator""_MiB(unsigned long long count) { return static_cast<std::size_t>(count) << 20U; }

inline constexpr std::size_t kCacheLine = 64;
inline constexpr std::size_t kPage = 4_KiB;  // the smallest of a system

}  // namespace syntony
