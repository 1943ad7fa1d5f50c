// What the headers that generated kernels use need of the standard library. NVRTC, which compiles those at run time,
// has none; everybody else has the real one.
#pragma once

#ifdef __CUDACC_RTC__
namespace std {
using uint8_t = unsigned char;
using int8_t = signed char;
using uint16_t = unsigned short;
using int16_t = short;
using uint32_t = unsigned int;
using int32_t = int;
using uint64_t = unsigned long;
using int64_t = long;
using uintptr_t = unsigned long;
static_assert(sizeof(uint64_t) == 8 && sizeof(void*) == 8);

enum class byte : unsigned char {};

template <bool kCondition, class Yes, class No>
struct conditional {
  using type = Yes;
};
template <class Yes, class No>
struct conditional<false, Yes, No> {
  using type = No;
};
template <bool kCondition, class Yes, class No>
using conditional_t = typename conditional<kCondition, Yes, No>::type;

template <class T>
using make_unsigned_t =
    conditional_t<sizeof(T) == 1, uint8_t,
                  conditional_t<sizeof(T) == 2, uint16_t, conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
}  // namespace std
#else
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#endif
