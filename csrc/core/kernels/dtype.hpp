// Element types and reduction operators: their names and sizes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/kernels/element_types.hpp"

namespace syntony {

struct DTypeTraits {
  std::string_view name;
  std::size_t bytes;
};

inline constexpr std::array<DTypeTraits, 21> kDTypes{{
    {"uint8", 1},          {"int8", 1},          {"uint16", 2},      {"int16", 2},           {"uint32", 4},
    {"int32", 4},          {"uint64", 8},        {"int64", 8},       {"float16", 2},         {"bfloat16", 2},
    {"float32", 4},        {"float64", 8},       {"bool", 1},        {"complex32", 4},       {"complex64", 8},
    {"complex128", 16},    {"float8_e4m3fn", 1}, {"float8_e5m2", 1}, {"float8_e4m3fnuz", 1}, {"float8_e5m2fnuz", 1},
    {"float8_e8m0fnu", 1},
}};

inline constexpr std::array<std::string_view, 7> kReduceOps{"sum", "product", "min", "max", "band", "bor", "bxor"};

[[nodiscard]] constexpr std::size_t size_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].bytes; }
[[nodiscard]] constexpr std::string_view name_of(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)].name; }
[[nodiscard]] constexpr std::string_view name_of(ReduceOp op) { return kReduceOps[static_cast<std::size_t>(op)]; }

}  // namespace syntony
