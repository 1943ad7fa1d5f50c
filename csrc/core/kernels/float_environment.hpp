// The floating-point environment that kernels assume, whatever thread they run on.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace syntony {

/// IEEE's default arithmetic during its lifetime: rounding to nearest, subnormals kept, no traps. A waiting caller runs
/// kernels in its own thread, which may have changed these settings (torch.set_flush_denormal).
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() : before_(control()) {
    if (before_ != kDefault) set_control(kDefault);
  }
  ~DefaultFloatEnvironment() {
    if (before_ != kDefault) set_control(before_);
  }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint32_t kDefault = 0x1F80;
  static constexpr std::uint32_t kFlags = 0x3F;  // status flags: they do not affect arithmetic
  static std::uint32_t control() { return _mm_getcsr() & ~kFlags; }
  static void set_control(std::uint32_t value) { _mm_setcsr(value | (_mm_getcsr() & kFlags)); }
#elif defined(__aarch64__)
  static constexpr std::uint32_t kDefault = 0;
  static std::uint32_t control() {
    std::uint64_t value = 0;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return static_cast<std::uint32_t>(value);
  }
  static void set_control(std::uint32_t value) { asm volatile("msr fpcr, %0" : : "r"(std::uint64_t{value})); }
#else
  static constexpr std::uint32_t kDefault = 0;
  static std::uint32_t control() { return kDefault; }
  static void set_control(std::uint32_t /*value*/) {}
#endif
  std::uint32_t before_;
};

}  // namespace syntony
