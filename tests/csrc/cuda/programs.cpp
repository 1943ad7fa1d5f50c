#include "programs.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "core/program/program_builder.hpp"

namespace syntony::cuda {
namespace {

using Place = std::pair<std::uint32_t, std::uint32_t>;  // rank, chunk

class RandomWriter {
 public:
  RandomWriter(Random& random, std::uint32_t ranks) : random_(random), ranks_(ranks) {
    const std::uint32_t chunks = 1 + below(random, 4);
    for (std::uint32_t i = 0; i < chunks; ++i) chunks_.push_back({0, 1 + below(random, 4)});
  }

  Program write() {
    ProgramBuilder builder("random", Collective::all_reduce, ranks_, 0, chunks_);
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      for (std::uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
        defined_[{rank, chunk}] = {builder.input(rank, chunk)};
        unwritten_.insert({rank, chunk});
      }
    }
    const std::uint32_t leaps = below(random_, 3);
    std::uint16_t skew = 0;
    for (std::uint32_t moves = 5 + below(random_, 55); moves > 0; --moves) {
      if (below(random_, 5) < leaps * 2) skew = static_cast<std::uint16_t>(skew + 1 + below(random_, 3));
      builder.skew(skew);
      add_move(builder);
    }
    for (const Place& place : unwritten_) {
      builder.copy(place.first, builder.output(place.first, place.second), any(place));
    }
    return builder.finish();
  }

 private:
  void add_move(ProgramBuilder& builder) {
    const Place here{below(random_, ranks_), below(random_, static_cast<std::uint32_t>(chunks_.size()))};
    std::vector<Slot> sources(1 + below(random_, 4));
    for (Slot& source : sources) source = any(here);
    const std::uint32_t kind = below(random_, ranks_ > 1 ? 4 : 2);
    if (kind < 2) {
      const Slot to = destination(builder, here);
      if (kind == 0) builder.copy(here.first, to, sources[0]);
      if (kind == 1) builder.reduce(here.first, to, sources);
      put(here, to);
      return;
    }
    const Place there{(here.first + 1 + below(random_, ranks_ - 1)) % ranks_, here.second};
    const auto channel = static_cast<std::uint16_t>(below(random_, 3));
    const Slot operand = any(there);
    const Slot to = destination(builder, there);
    if (kind == 2) builder.transfer(here.first, sources[0], there.first, to, channel);
    if (kind == 3) builder.transfer_reduce(here.first, sources[0], there.first, to, operand, channel);
    put(there, to);
  }

  /// An input is not read once its output is written, because in place it is then gone.
  Slot destination(ProgramBuilder& builder, Place place) {
    std::vector<Slot>& slots = defined_[place];
    const std::uint32_t choice = below(random_, 4);
    const Slot output = builder.output(place.first, place.second);
    if (choice == 0) {
      if (unwritten_.erase(place) > 0) {
        std::erase(slots, builder.input(place.first, place.second));
        slots.push_back(output);
      }
      return output;
    }
    const auto scratch = std::ranges::find_if(slots, [](const Slot& slot) { return slot.space == Space::scratch; });
    if (choice == 1 && scratch != slots.end()) return *scratch;
    return builder.scratch(place.first, place.second);
  }
  Slot any(Place place) {
    const std::vector<Slot>& slots = defined_[place];
    return slots[below(random_, static_cast<std::uint32_t>(slots.size()))];
  }
  void put(Place place, Slot slot) {
    std::vector<Slot>& slots = defined_[place];
    if (std::ranges::find(slots, slot) == slots.end()) slots.push_back(slot);
  }

  Random& random_;
  std::uint32_t ranks_;
  std::vector<Chunk> chunks_;
  std::map<Place, std::vector<Slot>> defined_;
  std::set<Place> unwritten_;
};

}  // namespace

Program random_program(Random& random, std::uint32_t ranks) { return RandomWriter(random, ranks).write(); }

// Chunk group g of a ring starts at its g-th rank; partial sums go round once, and the whole sum is stored at the last
// rank and copied round. Each lane's final nop waits for the first ring.
Program fused_rings(Random& random, std::uint32_t ranks) {
  const std::uint32_t rings = 1 + below(random, 3);
  std::vector<std::uint32_t> counts(rings), first(rings, 0);
  for (std::uint32_t& count : counts) count = 1 + below(random, 3);
  std::vector<std::vector<std::uint32_t>> orders(rings, std::vector<std::uint32_t>(ranks));
  std::vector<std::uint16_t> skews(rings);
  Program program;
  program.name = "fused rings";
  program.fifo_depth = 2;
  program.rounds_per_hop = true;
  for (std::uint32_t ring = 0; ring < rings; ++ring) {
    first[ring] = static_cast<std::uint32_t>(program.chunks.size());
    for (std::uint32_t i = 0; i < counts[ring] * ranks; ++i) program.chunks.push_back({0, 1 + below(random, 4)});
    std::iota(orders[ring].begin(), orders[ring].end(), 0U);
    std::ranges::shuffle(orders[ring], random);
    skews[ring] = static_cast<std::uint16_t>(below(random, 4));
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    AgentDraft agent;
    agent.input.resize(program.chunks.size());
    std::iota(agent.input.begin(), agent.input.end(), 0U);
    agent.output = agent.input;
    for (std::uint32_t ring = 0; ring < rings; ++ring) {
      const auto& order = orders[ring];
      const auto place = static_cast<std::uint32_t>(std::ranges::find(order, rank) - order.begin());
      const auto slot = [&](Space space, std::uint32_t step) {
        return Slot{space, first[ring] + (place + ranks - step % ranks) % ranks * counts[ring]};
      };
      auto& lane = agent.lanes.emplace_back();
      const auto add = [&](Opcode opcode, std::uint32_t step) {
        Instruction i;
        i.opcode = opcode;
        i.dst = slot(Space::output, step);
        i.src = slot(Space::input, step);
        i.count = counts[ring];
        i.channel = static_cast<std::uint16_t>(ring);
        i.skew = skews[ring];
        if (receives(opcode)) i.recv_peer = static_cast<std::int32_t>(order[(place + ranks - 1) % ranks]);
        if (sends(opcode)) i.send_peer = static_cast<std::int32_t>(order[(place + 1) % ranks]);
        lane.push_back({i, {}, {}});
      };
      add(Opcode::send, 0);
      for (std::uint32_t step = 1; step < ranks; ++step) {
        add(step < ranks - 1 ? Opcode::recv_reduce_send : Opcode::recv_reduce_copy_send, step);
      }
      for (std::uint32_t step = 0; step + 1 < ranks; ++step) {
        add(step + 2 < ranks ? Opcode::recv_copy_send : Opcode::recv, step);
      }
    }
    Instruction signal, wait, nop;
    signal.opcode = Opcode::signal;
    signal.send_peer = static_cast<std::int32_t>((rank + 1) % ranks);
    wait.opcode = Opcode::wait;
    wait.recv_peer = static_cast<std::int32_t>((rank + ranks - 1) % ranks);
    signal.channel = wait.channel = static_cast<std::uint16_t>(rings);
    nop.skew = skews[0];
    agent.lanes.push_back({{signal, {}, {}}, {wait, {}, {}}, {nop, {}, {{0, 2 * ranks - 2}}}});
    program.add(agent);
  }
  program.validate();
  return program;
}

}  // namespace syntony::cuda
