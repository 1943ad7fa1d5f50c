#include "core/program/prepared_program.hpp"

#include <utility>

namespace syntony {

PreparedProgram::PreparedProgram(Program program)
    : program_(std::move(program)),
      hash_(program_.hash()),
      message_slots_(program_.message_slots()),
      needs_size_matrix_(program_.needs_size_matrix()) {
  std::vector<std::uint64_t> totals(block_count(program_.collective, program_.ranks()), 0);
  shares_.reserve(program_.chunks.size());
  for (const Chunk& chunk : program_.chunks) {
    const std::uint64_t before = totals[chunk.block];
    totals[chunk.block] += chunk.weight;
    heaviest_ = std::max(heaviest_, chunk.weight);
    shares_.push_back({before, before + chunk.weight, 0});
  }
  for (std::size_t i = 0; i < shares_.size(); ++i) shares_[i].total = totals[program_.chunks[i].block];
}

}  // namespace syntony
