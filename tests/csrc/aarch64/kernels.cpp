// The kernels of this processor against the portable ones, bit for bit: every type, every operation, one to five
// operands, sizes with and without a remainder. Half of the elements are random bits (including infinities, NaNs,
// subnormals), half are small numbers of their format.
//
//      kernels [SEED]        exit code 1, and the first difference, when they differ
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/kernels/dtype.hpp"
#include "core/kernels/kernel_table.hpp"

namespace {

using syntony::KernelTable;

#ifdef __aarch64__
const KernelTable& kOurs = syntony::kNeonKernels;
#else
const KernelTable& kOurs = syntony::kPortableKernels;
#endif
const KernelTable& kReference = syntony::kPortableKernels;
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

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : std::random_device()();
  std::printf("%.*s, seed %llu\n", static_cast<int>(kOurs.isa.size()), kOurs.isa.data(),
              static_cast<unsigned long long>(seed));
  Operands operands(seed);
  std::size_t compared = 0;
  for (std::size_t type = 0; type < syntony::kDTypes.size(); ++type) {
    const auto& traits = syntony::kDTypes[type];
    for (const std::size_t elements : {1, 3, 16, 63, 64, 65, 1000}) {
      const std::size_t bytes = elements * traits.bytes;
      std::array<Bytes, kOperands> inputs;
      std::array<const std::byte*, kOperands> sources{};
      for (std::size_t k = 0; k < kOperands; ++k) {
        inputs[k] = operands.make(bytes, k % 2 == 0);
        sources[k] = inputs[k].data();
      }
      Bytes ours(bytes), reference(bytes);
      for (std::size_t op = 0; op < syntony::kReduceOps.size(); ++op) {
        const auto kernel = kOurs.reduce[type][op], other = kReference.reduce[type][op];
        if ((kernel == nullptr) != (other == nullptr)) return std::puts("one has no kernel"), 1;
        if (kernel == nullptr) continue;
        for (std::size_t count = 2; count <= kOperands; ++count) {
          kernel(ours.data(), sources.data(), count, bytes);
          other(reference.data(), sources.data(), count, bytes);
          if (!same(ours, reference, "reduction", traits.name, op, count, bytes)) return 1;
          ++compared;
        }
      }
      for (const bool divides : {false, true}) {
        const auto kernel = divides ? kOurs.divide[type] : kOurs.scale[type];
        const auto other = divides ? kReference.divide[type] : kReference.scale[type];
        if (kernel == nullptr) continue;
        kernel(ours.data(), sources[0], bytes, 3.0);
        other(reference.data(), sources[0], bytes, 3.0);
        if (!same(ours, reference, divides ? "division" : "scaling", traits.name, 0, 1, bytes)) return 1;
        ++compared;
      }
    }
  }
  std::printf("ok: %zu comparisons\n", compared);
  return 0;
}
