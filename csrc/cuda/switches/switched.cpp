#include <stdexcept>
#include <string>

#include "cuda/switches/switched.hpp"

namespace syntony::cuda {

NvlsLaunch switched(const NvlsShape& shape, std::uint32_t rank, Collective collective, DType dtype, ReduceOp op,
                    std::size_t elements) {
  NvlsLaunch launch;
  launch.shape = shape;
  launch.rank = rank;
  launch.bytes = elements * size_of(dtype);
  switch (collective) {
    case Collective::all_reduce:
      launch.collective = NvlsCollective::all_reduce;
      break;
    case Collective::all_gather:
      launch.collective = NvlsCollective::all_gather;
      break;
    case Collective::reduce_scatter:
      launch.collective = NvlsCollective::reduce_scatter;
      break;
    default:
      throw std::invalid_argument("nvls runs all_reduce, all_gather and reduce_scatter; " +
                                  std::string(name_of(collective)) + " has nothing that a switch could do");
  }
  if (reduces(collective)) {
    launch.kind = switch_kind(dtype, op);
    if (launch.kind == SwitchKind::none) {
      throw std::invalid_argument("nvls cannot run " + std::string(name_of(op)) + " of " + std::string(name_of(dtype)) +
                                  ": switches do not compute it");
    }
  }
  if (shape.slot_bytes % kLineBytes != 0 || nvls_piece(shape, launch.collective) == 0) {
    throw std::invalid_argument("a staging slot of " + std::to_string(shape.slot_bytes) +
                                " bytes does not hold 16 of " + "each of " + std::to_string(shape.ranks) +
                                " ranks, in multiples of 128");
  }
  return launch;
}

}  // namespace syntony::cuda
