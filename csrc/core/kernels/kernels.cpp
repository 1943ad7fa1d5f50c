// Chooses the table of kernels for this machine and validates every call.
#include "core/kernels/kernels.hpp"
#include "core/kernels/float_environment.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "core/kernels/kernel_table.hpp"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace syntony {
namespace {

#ifdef __x86_64__
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// __builtin_cpu_supports also checks that the operating system saves the wide registers.
bool has_avx2() { return __builtin_cpu_supports("avx2") != 0 && has_f16c(); }
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
}
#endif

const KernelTable& choose_table() {
  const char* const variable = std::getenv("SYNTONY_ISA");
  const std::string_view wanted = variable == nullptr ? "" : variable;
  // Best first; an empty wish selects the first that this machine supports.
  std::string available;
  const auto takes = [&](const KernelTable& table) {
    available += available.empty() ? "" : ", ";
    available += table.isa;
    return wanted.empty() || wanted == table.isa;
  };
#ifdef __x86_64__
  if (has_avx512() && takes(kAvx512Kernels)) return kAvx512Kernels;
  if (has_avx2() && takes(kAvx2Kernels)) return kAvx2Kernels;
#endif
#ifdef __aarch64__
  if (takes(kNeonKernels)) return kNeonKernels;
#endif
  if (takes(kPortableKernels)) return kPortableKernels;
  throw std::invalid_argument("SYNTONY_ISA=" + std::string(wanted) + " is not available here; this machine has " +
                              available);
}

const KernelTable& table() {
  static const KernelTable& chosen = choose_table();
  return chosen;
}

constexpr std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }
constexpr std::size_t index_of(ReduceOp op) { return static_cast<std::size_t>(op); }

[[noreturn]] void refuse(std::string_view what, DType dtype) {
  throw std::invalid_argument(std::string(what) + " has no meaning for " + std::string(name_of(dtype)));
}

template <class T>
void divide_integers(std::byte* data, std::size_t count, std::int64_t divisor) {
  // Wide enough for every T and every divisor; unsigned elements stay unsigned (the divisor is positive).
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  const auto by = static_cast<Wide>(divisor);
  for (std::size_t i = 0; i < count; ++i, data += sizeof(T)) {
    T value;
    std::memcpy(&value, data, sizeof value);
    value = static_cast<T>(static_cast<Wide>(value) / by);
    std::memcpy(data, &value, sizeof value);
  }
}

using Reductions = KernelTable::Reduce[kDTypes.size()][kReduceOps.size()];

void reduce_by(const Reductions& kernels, DType dtype, ReduceOp op, std::byte* dst,
               std::span<const std::byte* const> sources, std::size_t count, std::size_t pages = 1,
               const Beside& beside = {}) {
  const KernelTable::Reduce kernel = kernels[index_of(dtype)][index_of(op)];
  if (kernel == nullptr) refuse(name_of(op), dtype);
  if (sources.empty()) throw std::invalid_argument("reduce needs at least one source");
  const std::size_t bytes = count * size_of(dtype);
  if (bytes == 0) return;
  if (sources.size() > 1) {
    const DefaultFloatEnvironment arithmetic;
    kernel(dst, sources.data(), sources.size(), bytes, pages, beside);
  } else {
    if (dst != sources[0]) std::memcpy(dst, sources[0], bytes);
    if (beside.also != nullptr) std::memcpy(beside.also, sources[0], bytes);
    for (std::byte* const to : beside.too) std::memcpy(to, sources[0], bytes);
    for (const auto& moves : {beside.shown, beside.taken}) {
      for (const Beside::Move& move : moves) std::memcpy(move.to, move.from, bytes);
    }
  }
}

}  // namespace

bool supports(DType dtype, ReduceOp op) { return kPortableKernels.reduce[index_of(dtype)][index_of(op)] != nullptr; }

void reduce(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources, std::size_t count) {
  reduce_by(table().reduce, dtype, op, dst, sources, count);
}

void reduce_paged(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources,
                  std::size_t count) {
  constexpr std::size_t kPages = 4;
  reduce_by(table().reduce, dtype, op, dst, sources, count, kPages);
}

void reduce_past(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources,
                 std::size_t count) {
  reduce_by(table().reduce_past, dtype, op, dst, sources, count);
}

void reduce_past_beside(DType dtype, ReduceOp op, std::byte* dst, std::span<const std::byte* const> sources,
                        std::size_t count, const Beside& beside) {
  reduce_by(table().reduce_past, dtype, op, dst, sources, count, 1, beside);
}

void scale(DType dtype, std::byte* dst, const std::byte* src, std::size_t count, double factor) {
  const KernelTable::Map kernel = table().scale[index_of(dtype)];
  if (kernel == nullptr) refuse("scaling", dtype);
  const DefaultFloatEnvironment arithmetic;
  kernel(dst, src, count * size_of(dtype), factor);
}

void divide(DType dtype, std::byte* data, std::size_t count, std::int64_t divisor) {
  if (divisor < 1) throw std::invalid_argument("cannot divide by " + std::to_string(divisor) + "; a divisor is >= 1");
  const DefaultFloatEnvironment arithmetic;
  switch (dtype) {
    case DType::uint8:
      return divide_integers<std::uint8_t>(data, count, divisor);
    case DType::int8:
      return divide_integers<std::int8_t>(data, count, divisor);
    case DType::uint16:
      return divide_integers<std::uint16_t>(data, count, divisor);
    case DType::int16:
      return divide_integers<std::int16_t>(data, count, divisor);
    case DType::uint32:
      return divide_integers<std::uint32_t>(data, count, divisor);
    case DType::int32:
      return divide_integers<std::int32_t>(data, count, divisor);
    case DType::uint64:
      return divide_integers<std::uint64_t>(data, count, divisor);
    case DType::int64:
      return divide_integers<std::int64_t>(data, count, divisor);
    default:
      break;
  }
  const KernelTable::Map kernel = table().divide[index_of(dtype)];
  if (kernel == nullptr) refuse("division", dtype);
  kernel(data, data, count * size_of(dtype), static_cast<double>(divisor));
}

std::string_view kernel_isa() { return table().isa; }

}  // namespace syntony
