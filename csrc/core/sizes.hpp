// Sizes in bytes: 64_KiB, 2_MiB.
#pragma once

#include <cstddef>

namespace syntony {

consteval std::size_t operator""_KiB(unsigned long long count) { return static_cast<std::size_t>(count) << 10U; }
consteval std::size_t operator""_MiB(unsigned long long count) { return static_cast<std::size_t>(count) << 20U; }

}  // namespace syntony
