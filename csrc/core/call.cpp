#include "core/call.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/kernels/kernels.hpp"

namespace syntony {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Error::Kind::invalid, sentence); }

}  // namespace

std::size_t Call::longest() const {
  std::size_t most = 0;
  for (const Block& block : blocks) most = std::max(most, block.elements);
  return most;
}

std::size_t Call::elements(std::uint32_t ranks) const {
  if (even) return longest() * blocks_of_rank(collective, ranks);
  std::size_t all = 0;
  if (!own_sizes_only()) {
    for (const Block& block : blocks) all += block.elements;
  }
  return all;
}

void Call::validate(std::uint32_t ranks) const {
  const auto named = [this] { return std::string(name_of(collective)); };
  if (root >= ranks) {
    refuse("invalid root rank " + std::to_string(root) + " for " + named() + ": the group has " +
           std::to_string(ranks) + " ranks");
  }
  if (blocks.size() != block_count(collective, ranks)) {
    refuse(named() + " over " + std::to_string(ranks) + " ranks takes " +
           std::to_string(block_count(collective, ranks)) + " blocks, not " + std::to_string(blocks.size()));
  }
  if (reduces(collective)) {
    if (!supports(dtype, op)) {
      refuse(std::string(name_of(op)) + " of " + std::string(name_of(dtype)) + " has no meaning");
    }
    if ((scaling.average || scaling.weighs()) && op != ReduceOp::sum) refuse("only a sum can be averaged or weighted");
    if (scaling.average && (dtype == DType::boolean || dtype == DType::float8_e8m0fnu)) {
      refuse("an average of " + std::string(name_of(dtype)) + " has no meaning");
    }
  }
  if (options.partition > 0 && own_sizes_only()) {
    refuse("an all_to_all with uneven sizes cannot be partitioned: each rank knows only its own sizes");
  }
}

}  // namespace syntony
