#include "core/in_network/number_format.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/kernels/kernels.hpp"

namespace syntony {
namespace {

constexpr int kMantissaBits = 23;
constexpr std::uint32_t kExponentMask = 0xff;
constexpr std::uint32_t kMantissaMask = (1U << kMantissaBits) - 1U;
constexpr std::uint32_t kInfinity = 0x7f800000;
constexpr std::uint32_t kQuietNan = 0x7fc00000;

/// The element type that add_on_wire passes to the kernels.
std::optional<DType> plain(NumberFormat format) {
  switch (format) {
    case NumberFormat::float32:
      return DType::float32;
    case NumberFormat::float16:
      return DType::float16;
    case NumberFormat::bfloat16:
      return DType::bfloat16;
    case NumberFormat::float64:
      return DType::float64;
    case NumberFormat::int32:
    case NumberFormat::int32_block:
      return DType::int32;
    case NumberFormat::float32_fpisa:
      break;
  }
  return std::nullopt;
}

// ---- bfloat16 -------------------------------------------------------------------------------------------------------

std::uint16_t rounded_to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);  // nearest, ties to even
}

// ---- int32_block ----------------------------------------------------------------------------------------------------

/// The b of the header's formula: bits of magnitude that each of n workers may use.
int magnitude_bits(std::size_t workers) { return 31 - static_cast<int>(std::bit_width(workers - 1)); }

/// 2^(b - e) for a block whose largest biased exponent is `exponent`. Powers of two are exact in double.
double scale_of(std::uint8_t exponent, std::size_t workers) {
  const int e = std::max<int>(exponent, 1) - 126;  // |x| < 2^e; subnormals count as the smallest normal
  return std::ldexp(1.0, magnitude_bits(workers) - e);
}

void scale_block(std::int32_t* wire, const float* values, std::size_t count, double scale, double limit) {
  // Adding and subtracting 1.5 * 2^52 rounds to the nearest integer, ties to even, in plain additions.
  constexpr double kRounder = 6755399441055744.0;
  for (std::size_t i = 0; i < count; ++i) {
    const double rounded = (static_cast<double>(values[i]) * scale + kRounder) - kRounder;
    wire[i] = static_cast<std::int32_t>(std::clamp(rounded, -limit, limit));
  }
}

// ---- float32_fpisa --------------------------------------------------------------------------------------------------

/// A float as stored in a switch's two registers: value = mantissa * 2^(exponent - 150).
struct Registers {
  std::int32_t mantissa = 0;
  int exponent = 0;
};

// Signs and exponents are practically random: the code computes both cases and selects, instead of branching.

Registers registers_of(std::uint32_t bits) {
  const auto exponent = static_cast<int>((bits >> kMantissaBits) & kExponentMask);
  const auto magnitude = static_cast<std::int32_t>((bits & kMantissaMask) | (1U << kMantissaBits));
  const auto sign = static_cast<std::int32_t>(bits) >> 31;  // 0 or -1
  const std::int32_t kept = exponent == 0 ? 0 : magnitude;  // subnormals count as zero
  return {(kept ^ sign) - sign, exponent};
}

/// The shifts are arithmetic: towards minus infinity.
void add(Registers& sum, const Registers& operand) {
  const int exponent = std::max(sum.exponent, operand.exponent);
  sum.mantissa = (sum.mantissa >> std::min(exponent - sum.exponent, 31)) +
                 (operand.mantissa >> std::min(exponent - operand.exponent, 31));
  sum.exponent = exponent;
}

/// Normalized only on the way out, as the switch does; bits that do not fit are truncated.
std::uint32_t bits_of(const Registers& sum) {
  const std::uint32_t sign = static_cast<std::uint32_t>(sum.mantissa) & 0x80000000U;
  const auto mask = static_cast<std::uint32_t>(sum.mantissa >> 31);
  const std::uint32_t magnitude = (static_cast<std::uint32_t>(sum.mantissa) ^ mask) - mask;
  const int above = static_cast<int>(std::bit_width(magnitude | 1U)) - (kMantissaBits + 1);
  const int exponent = sum.exponent + above;
  const std::uint64_t wide = static_cast<std::uint64_t>(magnitude) << kMantissaBits;
  const auto mantissa = static_cast<std::uint32_t>(wide >> static_cast<unsigned>(above + kMantissaBits));
  std::uint32_t bits = (static_cast<std::uint32_t>(exponent) << kMantissaBits) | (mantissa & kMantissaMask);
  bits = exponent >= 255 ? kInfinity : bits;
  bits = exponent <= 0 || magnitude == 0 ? 0U : bits;
  return magnitude == 0 ? 0U : sign | bits;
}

void add_in_registers(std::byte* dst, std::span<const std::byte* const> sources, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    Registers sum;
    std::uint32_t largest = 0;
    for (const std::byte* source : sources) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, source + i * sizeof(bits), sizeof(bits));
      largest = std::max(largest, bits & kInfinity);
      add(sum, registers_of(bits));
    }
    const std::uint32_t result = largest == kInfinity ? kQuietNan : bits_of(sum);
    std::memcpy(dst + i * sizeof(result), &result, sizeof(result));
  }
}

}  // namespace

std::optional<NumberFormat> number_format_named(std::string_view name) {
  const auto* const at = std::ranges::find(kNumberFormats, name);
  if (at == kNumberFormats.end()) return std::nullopt;
  return static_cast<NumberFormat>(at - kNumberFormats.begin());
}

std::size_t wire_bytes(NumberFormat format) { return size_of(plain(format).value_or(DType::float32)); }

bool verbatim(NumberFormat format, DType dtype) {
  if (format == NumberFormat::float32_fpisa) return dtype == DType::float32;
  return format != NumberFormat::int32_block && plain(format) == dtype;
}

bool carries(NumberFormat format, DType dtype) {
  const bool converts = format == NumberFormat::int32_block || format == NumberFormat::bfloat16;
  return verbatim(format, dtype) || (dtype == DType::float32 && converts);
}

std::size_t most_workers(NumberFormat format) {
  // Mantissas have 24 bits and the register 31 and a sign; blocks keep at least 21 bits of each element.
  return format == NumberFormat::float32_fpisa ? 128 : 1024;
}

void add_on_wire(NumberFormat format, std::byte* dst, std::span<const std::byte* const> sources, std::size_t count) {
  if (const std::optional<DType> dtype = plain(format)) {
    reduce(*dtype, ReduceOp::sum, dst, sources, count);
  } else {
    add_in_registers(dst, sources, count);
  }
}

void block_exponents(std::span<const float> values, std::uint8_t* exponents) {
  for (std::size_t begin = 0; begin < values.size(); begin += kBlockElements) {
    const auto block = values.subspan(begin, std::min(kBlockElements, values.size() - begin));
    std::uint32_t largest = 0;  // without the sign, floats order like their bits
    for (const float value : block) largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffU);
    exponents[begin / kBlockElements] = static_cast<std::uint8_t>(largest >> kMantissaBits);
  }
}

void to_wire(NumberFormat format, std::byte* wire, std::span<const float> values, const std::uint8_t* exponents,
             std::size_t workers) {
  if (format == NumberFormat::bfloat16) {
    auto* const out = reinterpret_cast<std::uint16_t*>(wire);
    std::ranges::transform(values, out, rounded_to_bfloat16);
    return;
  }
  if (format != NumberFormat::int32_block) {
    std::memcpy(wire, values.data(), values.size_bytes());
    return;
  }
  auto* const out = reinterpret_cast<std::int32_t*>(wire);
  const double limit = std::ldexp(1.0, magnitude_bits(workers)) - 1.0;
  for (std::size_t begin = 0; begin < values.size(); begin += kBlockElements) {
    const std::size_t count = std::min(kBlockElements, values.size() - begin);
    const std::uint8_t exponent = exponents[begin / kBlockElements];
    if (exponent == kNotFinite) {
      std::fill_n(out + begin, count, 0);
    } else {
      scale_block(out + begin, values.data() + begin, count, scale_of(exponent, workers), limit);
    }
  }
}

void from_wire(NumberFormat format, std::span<float> values, const std::byte* wire, const std::uint8_t* exponents,
               std::size_t workers) {
  if (format == NumberFormat::bfloat16) {
    const auto* const in = reinterpret_cast<const std::uint16_t*>(wire);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(in[i]) << 16U);
    }
    return;
  }
  if (format != NumberFormat::int32_block) {
    std::memcpy(values.data(), wire, values.size_bytes());
    return;
  }
  const auto* const in = reinterpret_cast<const std::int32_t*>(wire);
  for (std::size_t begin = 0; begin < values.size(); begin += kBlockElements) {
    const std::size_t count = std::min(kBlockElements, values.size() - begin);
    const std::uint8_t exponent = exponents[begin / kBlockElements];
    const double back =
        exponent == kNotFinite ? std::numeric_limits<double>::quiet_NaN() : 1.0 / scale_of(exponent, workers);
    for (std::size_t i = begin; i < begin + count; ++i) {
      values[i] = static_cast<float>(static_cast<double>(in[i]) * back);
    }
  }
}

void sum_through_switch(NumberFormat format, std::span<float> dst, std::span<const float* const> sources) {
  if (!carries(format, DType::float32)) {
    throw Error(Error::Kind::invalid, std::string(name_of(format)) + " does not carry float32");
  }
  const std::size_t workers = sources.size();
  if (workers < 1 || workers > most_workers(format)) {
    throw Error(Error::Kind::invalid, std::string(name_of(format)) + " adds 1 to " +
                                          std::to_string(most_workers(format)) + " sources, not " +
                                          std::to_string(workers));
  }
  const std::size_t count = dst.size();
  std::vector<std::uint8_t> exponents(blocks_of(count));
  for (const float* source : sources) {
    std::vector<std::uint8_t> mine(exponents.size());
    block_exponents({source, count}, mine.data());
    std::ranges::transform(exponents, mine, exponents.begin(),
                           [](std::uint8_t one, std::uint8_t other) { return std::max(one, other); });
  }
  std::vector<std::vector<std::byte>> wires(workers + 1, std::vector<std::byte>(count * wire_bytes(format)));
  std::vector<const std::byte*> pointers;
  for (std::size_t worker = 0; worker < workers; ++worker) {
    to_wire(format, wires[worker].data(), {sources[worker], count}, exponents.data(), workers);
    pointers.push_back(wires[worker].data());
  }
  add_on_wire(format, wires[workers].data(), pointers, count);
  from_wire(format, dst, wires[workers].data(), exponents.data(), workers);
}

}  // namespace syntony
