// Kernels for any machine: 16-byte vectors, which the compiler maps to SSE2, NEON or plain registers.
#include "core/kernels/kernel_loops.hpp"

namespace syntony {
namespace {

struct Portable {
  static constexpr std::size_t kBytes = 16;
};

}  // namespace

constinit const KernelTable kPortableKernels = kernels::make_kernels<Portable>("portable");

}  // namespace syntony
