// The kernels of this machine (SYNTONY_ISA chooses) against the portable ones, bit for bit: every type, every
// operation, two to five operands, sizes with and without a remainder, read page by page or from several at a time,
// written into the caches or past them, alone or beside moves. Half of the elements are random bits (including
// infinities, NaNs, subnormals), half are small numbers of their format.
//
//      kernels [SEED]        exit code 1, and the first difference, when they differ; 2 without that instruction set
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernels/dtype.hpp"
#include "core/kernels/kernel_table.hpp"
#include "core/kernels/kernels.hpp"
#include "core/sizes.hpp"

namespace {

using syntony::kPage;
constexpr const syntony::KernelTable& kReference = syntony::kPortableKernels;
constexpr std::size_t kOperands = 5;

using Bytes = std::vector<std::byte>;

class Operands {
 public:
  explicit Operands(std::uint64_t seed) : random_(seed) {}

  Bytes make(std::size_t bytes, bool small) {
    Bytes made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      // In each of our formats, the upper byte of an element near one is 0x3c to 0x40, with or without a sign.
      const auto any = static_cast<std::uint8_t>(random_());
      made[i] = std::byte(small && any % 2 == 0 ? (any & 0x80U) | (0x3cU + any % 5) : any);
    }
    return made;
  }

 private:
  std::mt19937_64 random_;
};

bool same(const Bytes& a, const Bytes& b, const char* what, std::string_view dtype, std::size_t operation,
          std::size_t operands, std::size_t bytes) {
  if (a == b) return true;
  std::size_t at = 0;
  while (a[at] == b[at]) ++at;
  std::printf("%s of %.*s, operation %zu, %zu operands, %zu bytes: byte %zu is %02x, not %02x\n", what,
              static_cast<int>(dtype.size()), dtype.data(), operation, operands, bytes, at,
              static_cast<unsigned>(a[at]), static_cast<unsigned>(b[at]));
  return false;
}

/// Throws std::invalid_argument if this machine lacks the instruction set that is asked for.
int compare(std::uint64_t seed) {
  const std::string isa(syntony::kernel_isa());
  std::printf("%s, seed %llu\n", isa.c_str(), static_cast<unsigned long long>(seed));
  Operands operands(seed);
  std::size_t compared = 0;
  for (std::size_t type = 0; type < syntony::kDTypes.size(); ++type) {
    const auto dtype = static_cast<syntony::DType>(type);
    const auto& traits = syntony::kDTypes[type];
    for (const std::size_t elements :
         {std::size_t{1}, std::size_t{3}, std::size_t{16}, std::size_t{63}, std::size_t{64}, std::size_t{65},
          std::size_t{1000}, 9 * kPage / traits.bytes + 1}) {
      const std::size_t bytes = elements * traits.bytes;
      std::array<Bytes, kOperands> inputs;
      std::array<const std::byte*, kOperands> sources{};
      for (std::size_t k = 0; k < kOperands; ++k) {
        inputs[k] = operands.make(bytes, k % 2 == 0);
        sources[k] = inputs[k].data();
      }
      Bytes ours(bytes), reference(bytes);
      for (std::size_t op = 0; op < syntony::kReduceOps.size(); ++op) {
        const auto kernel = kReference.reduce[type][op];
        if (kernel == nullptr) continue;
        for (std::size_t count = 2; count <= kOperands; ++count) {
          kernel(reference.data(), sources.data(), count, bytes, 1, {});
          for (const auto reduce : {syntony::reduce, syntony::reduce_paged, syntony::reduce_past}) {
            reduce(dtype, static_cast<syntony::ReduceOp>(op), ours.data(), {sources.data(), count}, elements);
            if (!same(ours, reference, "reduction", traits.name, op, count, bytes)) return 1;
            ++compared;
          }
          Bytes also(bytes), too(bytes), shown(bytes), taken(bytes);
          const std::array<std::byte*, 1> others{too.data()};
          const std::array<syntony::Beside::Move, 1> show{{{shown.data(), sources[0]}}},
              take{{{taken.data(), sources[1]}}};
          syntony::reduce_past_beside(dtype, static_cast<syntony::ReduceOp>(op), ours.data(), {sources.data(), count},
                                      elements, {.also = also.data(), .too = others, .shown = show, .taken = take});
          if (!same(ours, reference, "reduction beside moves", traits.name, op, count, bytes) ||
              !same(also, reference, "its second result", traits.name, op, count, bytes) ||
              !same(too, reference, "its third result", traits.name, op, count, bytes) ||
              !same(shown, inputs[0], "what is shown beside it", traits.name, op, count, bytes) ||
              !same(taken, inputs[1], "what is taken beside it", traits.name, op, count, bytes)) {
            return 1;
          }
          ++compared;
        }
      }
      if (const auto kernel = kReference.scale[type]; kernel != nullptr) {
        kernel(reference.data(), sources[0], bytes, 3.0);
        syntony::scale(dtype, ours.data(), sources[0], elements, 3.0);
        if (!same(ours, reference, "scaling", traits.name, 0, 1, bytes)) return 1;
        ++compared;
      }
      if (const auto kernel = kReference.divide[type]; kernel != nullptr) {
        kernel(reference.data(), sources[0], bytes, 3.0);
        ours = inputs[0];
        syntony::divide(dtype, ours.data(), elements, 3);
        if (!same(ours, reference, "division", traits.name, 0, 1, bytes)) return 1;
        ++compared;
      }
    }
  }
  std::printf("ok: %zu comparisons\n", compared);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::random_device()();
  try {
    return compare(seed);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
