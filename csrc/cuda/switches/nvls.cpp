#include "cuda/switches/nvls.hpp"

#include <stdexcept>
#include <string>

namespace syntony::cuda {
namespace {

NvlsShape checked(const NvlsShape& shape, const Multicast& memory, std::uint32_t rank) {
  if (shape.ranks != memory.ranks() || rank >= shape.ranks) {
    throw std::invalid_argument("rank " + std::to_string(rank) + " of " + std::to_string(shape.ranks) +
                                " does not fit a multicast object of " + std::to_string(memory.ranks()) + " GPUs");
  }
  if (memory.all() == nullptr) throw std::invalid_argument("bind() comes before the first launch");
  if (nvls_bytes(shape) > memory.size()) {
    throw std::invalid_argument("it takes " + std::to_string(nvls_bytes(shape)) + " bytes of multicast memory, and " +
                                std::to_string(memory.size()) + " are there");
  }
  return shape;
}

}  // namespace

SwitchedGroup::SwitchedGroup(const Multicast& memory, std::uint32_t rank, const NvlsShape& shape)
    : memory_(memory), rank_(rank), shape_(checked(shape, memory, rank)), last_(memory.device()) {}

SwitchedGroup::~SwitchedGroup() {
  // Launches still running use the memory and the words.
  if (last_stream_) static_cast<void>(cudaEventSynchronize(last_.handle()));
}

void SwitchedGroup::launch(Collective collective, DType dtype, ReduceOp op, const std::byte* input, std::byte* output,
                           std::size_t elements, cudaStream_t stream) {
  NvlsLaunch launch = switched(shape_, rank_, collective, dtype, op, elements);
  launch.own = memory_.own();
  launch.input = input;
  launch.output = output;
  launch.abort = words_.abort_word();
  launch.trouble = words_.trouble_words();
  launch.timeout = static_cast<std::uint64_t>(timeout_.count());

  const OnDevice here(memory_.device());
  const bool captured = is_capturing(stream);
  if (!captured && last_stream_ && *last_stream_ != stream) last_.precede(stream);
  run_switched(launch, memory_.all(), stream);
  if (captured) return;
  last_.record(stream);
  last_stream_ = stream;
}

}  // namespace syntony::cuda
