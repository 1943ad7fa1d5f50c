#include "cuda/pull.hpp"

#include <string>
#include <utility>

#include "core/program/collective.hpp"

namespace syntony::cuda {
namespace {

Slot slot_of(const std::vector<std::uint32_t>& chunks, std::uint32_t chunk, Space space) {
  for (std::uint32_t i = 0; i < chunks.size(); ++i) {
    if (chunks[i] == chunk) return {space, i};
  }
  return {space, 0};  // not there: validate() says so
}

Program empty_program(std::string name, Collective collective, std::uint32_t ranks, std::uint32_t root,
                      std::uint32_t chunks_of_a_block) {
  Program program;
  program.name = std::move(name);
  program.collective = collective;
  program.root = root;
  const std::uint32_t blocks = block_count(collective, ranks);
  for (std::uint32_t i = 0; i < blocks * chunks_of_a_block; ++i) program.chunks.push_back({i / chunks_of_a_block, 1});
  program.agents.resize(ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t chunk = 0; chunk < program.chunks.size(); ++chunk) {
      const std::uint32_t block = program.chunks[chunk].block;
      if (starts_with(collective, ranks, root, rank, block)) program.agents[rank].input.push_back(chunk);
      if (ends_with(collective, ranks, root, rank, block)) program.agents[rank].output.push_back(chunk);
    }
  }
  return program;
}

Instruction peer_access(Opcode opcode, Slot dst, Slot src, std::uint32_t peer) {
  Instruction instruction;
  instruction.opcode = opcode;
  instruction.dst = dst;
  instruction.src = src;
  instruction.send_peer = static_cast<std::int32_t>(peer);
  return instruction;
}

/// A lane in which `rank` fetches all that `chunk` is made of; with more than one source, their sum.
std::vector<Instruction> fetch(Program& program, std::uint32_t rank, std::uint32_t chunk) {
  Agent& agent = program.agents[rank];
  const Slot dst = slot_of(agent.output, chunk, Space::output);
  const bool sums = reduces(program.collective);
  std::vector<Instruction> lane;
  std::vector<Slot> operands;
  for (std::uint32_t from = 0; from < program.ranks(); ++from) {
    if (!starts_with(program.collective, program.ranks(), program.root, from, program.chunks[chunk].block)) continue;
    const Slot src = slot_of(program.agents[from].input, chunk, Space::input);
    if (from == rank) {
      operands.push_back(src);
      continue;
    }
    Slot to = dst;
    if (sums) {
      to = {Space::scratch, static_cast<std::uint32_t>(agent.scratch.size())};
      agent.scratch.push_back(chunk);
      operands.push_back(to);
    }
    lane.push_back(peer_access(Opcode::peer_read, to, src, from));
  }
  if (operands.empty()) return lane;
  Instruction last;
  last.opcode = operands.size() > 1 ? Opcode::reduce : Opcode::copy;
  last.dst = dst;
  last.src = operands[0];
  last.first_operand = static_cast<std::uint32_t>(agent.operands.size());
  last.operand_count = static_cast<std::uint32_t>(operands.size()) - 1;
  agent.operands.insert(agent.operands.end(), operands.begin() + 1, operands.end());
  lane.push_back(last);
  return lane;
}

}  // namespace

Program pull(Collective collective, std::uint32_t ranks, std::uint32_t root) {
  Program program = empty_program("pull", collective, ranks, root, 1);
  program.in_place = collective != Collective::all_reduce || ranks == 1;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (const std::uint32_t chunk : program.agents[rank].output) {
      program.agents[rank].lanes.push_back(fetch(program, rank, chunk));
    }
  }
  program.validate();
  return program;
}

Program pull_two_shot(std::uint32_t ranks) {
  Program program = empty_program("pull_two_shot", Collective::all_reduce, ranks, 0, ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Instruction> lane = fetch(program, rank, rank);
    for (std::uint32_t to = 0; to < ranks; ++to) {
      const Slot sum{Space::output, rank};
      if (to != rank) lane.push_back(peer_access(Opcode::peer_write, sum, sum, to));
    }
    program.agents[rank].lanes.push_back(std::move(lane));
  }
  program.validate();
  return program;
}

}  // namespace syntony::cuda
