#include "cuda/pull.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/program/collective.hpp"

namespace syntony::cuda {
namespace {

/// A Program without instructions, and its agents, which have only slots.
struct Pull {
  Program program;
  std::vector<AgentDraft> agents;

  Pull(std::string name, Collective collective, std::uint32_t ranks, std::uint32_t root,
       std::uint32_t chunks_of_a_block)
      : agents(ranks) {
    program.name = std::move(name);
    program.collective = collective;
    program.root = root;
    const std::uint32_t blocks = block_count(collective, ranks);
    for (std::uint32_t i = 0; i < blocks * chunks_of_a_block; ++i) program.chunks.push_back({i / chunks_of_a_block, 1});
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (std::uint32_t chunk = 0; chunk < program.chunks.size(); ++chunk) {
        const std::uint32_t block = program.chunks[chunk].block;
        if (starts_with(collective, ranks, root, rank, block)) agents[rank].input.push_back(chunk);
        if (ends_with(collective, ranks, root, rank, block)) agents[rank].output.push_back(chunk);
      }
    }
  }

  [[nodiscard]] std::uint32_t ranks() const { return static_cast<std::uint32_t>(agents.size()); }
  std::vector<Draft> fetch(std::uint32_t rank, std::uint32_t chunk);
  Program finish() && {
    for (const AgentDraft& agent : agents) program.add(agent);
    program.validate();
    return std::move(program);
  }
};

Slot slot_of(const std::vector<std::uint32_t>& chunks, std::uint32_t chunk, Space space) {
  return {space, static_cast<std::uint32_t>(std::ranges::find(chunks, chunk) - chunks.begin())};
}

Draft peer_access(Opcode opcode, Slot dst, Slot src, std::uint32_t peer) {
  Draft access;
  access.instruction.opcode = opcode;
  access.instruction.dst = dst;
  access.instruction.src = src;
  access.instruction.send_peer = static_cast<std::int32_t>(peer);
  return access;
}

/// A lane in which `rank` fetches everything that `chunk` consists of; with more than one source, their sum.
std::vector<Draft> Pull::fetch(std::uint32_t rank, std::uint32_t chunk) {
  AgentDraft& agent = agents[rank];
  const Slot dst = slot_of(agent.output, chunk, Space::output);
  const bool sums = reduces(program.collective);
  std::vector<Draft> lane;
  std::vector<Slot> operands;
  for (std::uint32_t from = 0; from < ranks(); ++from) {
    if (!starts_with(program.collective, ranks(), program.root, from, program.chunks[chunk].block)) continue;
    const Slot src = slot_of(agents[from].input, chunk, Space::input);
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
  Draft last;
  last.instruction.opcode = operands.size() > 1 ? Opcode::reduce : Opcode::copy;
  last.instruction.dst = dst;
  last.instruction.src = operands[0];
  last.operands.assign(operands.begin() + 1, operands.end());
  lane.push_back(std::move(last));
  return lane;
}

}  // namespace

Program pull(Collective collective, std::uint32_t ranks, std::uint32_t root) {
  Pull pull("pull", collective, ranks, root, 1);
  pull.program.in_place = collective != Collective::all_reduce || ranks == 1;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (const std::uint32_t chunk : pull.agents[rank].output) {
      pull.agents[rank].lanes.push_back(pull.fetch(rank, chunk));
    }
  }
  return std::move(pull).finish();
}

Program pull_two_shot(std::uint32_t ranks) {
  Pull pull("pull_two_shot", Collective::all_reduce, ranks, 0, ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Draft> lane = pull.fetch(rank, rank);
    for (std::uint32_t to = 0; to < ranks; ++to) {
      const Slot sum{Space::output, rank};
      if (to != rank) lane.push_back(peer_access(Opcode::peer_write, sum, sum, to));
    }
    pull.agents[rank].lanes.push_back(std::move(lane));
  }
  return std::move(pull).finish();
}

}  // namespace syntony::cuda
