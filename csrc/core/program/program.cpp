#include "core/program/program.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <tuple>

namespace syntony {
namespace {

constexpr std::uint32_t kMostRanks = 65'535;  // so that an all_to_all's blocks can be counted in 32 bits
constexpr std::array<std::string_view, 3> kSpaceNames{"input", "output", "scratch"};

/// What an opcode touches; the rows are in the order of `enum class Opcode`.
struct Shape {
  std::string_view name;
  bool reads = false, writes = false;  // src, dst
  bool receives = false, sends = false;
  bool one_sided = false;  // dst (peer_write) or src (peer_read) belongs to send_peer
};
constexpr std::array<Shape, kOpcodes> kShapes{{
    {.name = "nop"},
    {.name = "copy", .reads = true, .writes = true},
    {.name = "reduce", .reads = true, .writes = true},
    {.name = "send", .reads = true, .sends = true},
    {.name = "recv", .writes = true, .receives = true},
    {.name = "recv_reduce", .reads = true, .writes = true, .receives = true},
    {.name = "recv_copy_send", .writes = true, .receives = true, .sends = true},
    {.name = "recv_reduce_send", .reads = true, .receives = true, .sends = true},
    {.name = "recv_reduce_copy_send", .reads = true, .writes = true, .receives = true, .sends = true},
    {.name = "peer_read", .reads = true, .writes = true, .one_sided = true},
    {.name = "peer_write", .reads = true, .writes = true, .one_sided = true},
    {.name = "signal", .sends = true},
    {.name = "wait", .receives = true},
}};

const Shape& shape_of(Opcode opcode) { return kShapes[static_cast<std::size_t>(opcode)]; }

bool carries_data(Opcode opcode) {
  return (sends(opcode) && opcode != Opcode::signal) || (receives(opcode) && opcode != Opcode::wait);
}

template <typename Visit>
void for_each_instruction(const Program& program, Visit visit) {
  for (const Agent& agent : program.agents) {
    for (const auto& lane : agent.lanes) {
      for (const Instruction& instruction : lane) visit(agent, instruction);
    }
  }
}

template <typename Test>
bool any_instruction(const Program& program, Test test) {
  bool found = false;
  for_each_instruction(program,
                       [&](const Agent&, const Instruction& instruction) { found = found || test(instruction); });
  return found;
}

const std::vector<std::uint32_t>& slots_of(const Agent& agent, Space space) {
  switch (space) {
    case Space::input:
      return agent.input;
    case Space::output:
      return agent.output;
    case Space::scratch:
      break;
  }
  return agent.scratch;
}

/// 64-bit FNV-1a over little-endian bytes, the same on every machine.
class Fnv1a {
 public:
  template <typename Integer>
  void add(Integer value) {
    for (std::size_t byte = 0; byte < sizeof(Integer); ++byte) {
      state_ = (state_ ^ ((static_cast<std::uint64_t>(value) >> (8 * byte)) & 0xffU)) * 0x100000001b3ULL;
    }
  }
  void add(Slot slot) {
    add(static_cast<std::uint8_t>(slot.space));
    add(slot.index);
  }
  void add(const std::vector<std::uint32_t>& values) {
    add(values.size());
    for (const std::uint32_t value : values) add(value);
  }
  [[nodiscard]] std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325ULL;
};

/// The checks of one Program; every refusal says where it is.
class Validator {
 public:
  explicit Validator(const Program& program) : program_(program) {}

  void run() {
    check_header();
    for (agent_ = 0; agent_ < program_.ranks(); ++agent_) {
      check_slots(Space::input);
      check_slots(Space::output);
      check_slots(Space::scratch);
    }
    for (agent_ = 0; agent_ < program_.ranks(); ++agent_) check_lanes();
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument("program '" + program_.name + "': " + what);
  }
  [[noreturn]] void refuse_slots(const std::string& what) const {
    refuse("agent " + std::to_string(agent_) + ": " + what);
  }
  [[noreturn]] void refuse_here(const Instruction& instruction, const std::string& what) const {
    const auto code = static_cast<std::size_t>(instruction.opcode);
    const std::string opcode = code < kOpcodes ? std::string(kShapes[code].name) : "opcode " + std::to_string(code);
    refuse("agent " + std::to_string(agent_) + ", lane " + std::to_string(lane_) + ", instruction " +
           std::to_string(position_) + " (" + opcode + "): " + what);
  }

  void check_header() const {
    const std::uint32_t ranks = program_.ranks();
    if (ranks == 0) refuse("it has no agents; there must be one per rank");
    if (static_cast<std::size_t>(program_.collective) >= kCollectives.size()) refuse("its collective is unknown");
    if (program_.root >= ranks) {
      refuse("root " + std::to_string(program_.root) + " is not one of its " + std::to_string(ranks) + " ranks");
    }
    if (program_.fifo_depth == 0) refuse("fifo_depth is 0; a connection must hold at least 1 message");
    if (ranks > kMostRanks) {
      refuse("it has " + std::to_string(ranks) + " agents; " + std::to_string(kMostRanks) + " are the most");
    }
    const std::uint32_t blocks = block_count(program_.collective, ranks);
    std::vector<bool> seen(blocks, false);
    for (std::size_t i = 0; i < program_.chunks.size(); ++i) {
      const Chunk& chunk = program_.chunks[i];
      const std::string where = "chunk " + std::to_string(i);
      if (chunk.block >= blocks) {
        refuse(where + " names block " + std::to_string(chunk.block) + ", but " +
               std::string(name_of(program_.collective)) + " on " + std::to_string(ranks) + " ranks has " +
               std::to_string(blocks));
      }
      if (chunk.weight == 0) refuse(where + " has weight 0; weights are at least 1");
      if (i > 0 && program_.chunks[i - 1].block == chunk.block) continue;
      if (seen[chunk.block]) {
        refuse(where + " returns to block " + std::to_string(chunk.block) + "; the chunks of a block are contiguous");
      }
      seen[chunk.block] = true;
    }
  }

  void check_slots(Space space) const {
    const auto& slots = slots_of(program_.agents[agent_], space);
    std::vector<bool> seen(space == Space::scratch ? 0 : program_.chunks.size(), false);
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::uint32_t chunk = slots[i];
      const std::string where =
          std::string(kSpaceNames[static_cast<std::size_t>(space)]) + " slot " + std::to_string(i) + " ";
      if (chunk >= program_.chunks.size()) {
        refuse_slots(where + "holds chunk " + std::to_string(chunk) + ", but there are " +
                     std::to_string(program_.chunks.size()));
      }
      if (space == Space::scratch) continue;
      const std::uint32_t block = program_.chunks[chunk].block;
      const auto holds = space == Space::input ? starts_with : ends_with;
      if (!holds(program_.collective, program_.ranks(), program_.root, agent_, block)) {
        refuse_slots(where + "holds chunk " + std::to_string(chunk) + " of block " + std::to_string(block) +
                     ", which is not in this rank's " + std::string(kSpaceNames[static_cast<std::size_t>(space)]));
      }
      if (seen[chunk]) refuse_slots(where + "repeats chunk " + std::to_string(chunk));
      seen[chunk] = true;
    }
  }

  void check_lanes() {
    const Agent& agent = program_.agents[agent_];
    feeders_.clear();
    for (lane_ = 0; lane_ < agent.lanes.size(); ++lane_) {
      for (position_ = 0; position_ < agent.lanes[lane_].size(); ++position_) {
        check_instruction(agent, agent.lanes[lane_][position_]);
      }
    }
  }

  void check_instruction(const Agent& agent, const Instruction& instruction) {
    if (static_cast<std::size_t>(instruction.opcode) >= kOpcodes) refuse_here(instruction, "there is no such opcode");
    const Shape& shape = shape_of(instruction.opcode);
    if (instruction.count == 0) refuse_here(instruction, "count is 0; it is at least 1");
    if (position_ > 0 && instruction.skew < agent.lanes[lane_][position_ - 1].skew) {
      refuse_here(instruction, "skew " + std::to_string(instruction.skew) + " comes after skew " +
                                   std::to_string(agent.lanes[lane_][position_ - 1].skew) +
                                   "; skews never decrease along a lane");
    }

    if (shape.receives) check_peer(instruction, instruction.recv_peer, "recv_peer");
    if (shape.sends || shape.one_sided) check_peer(instruction, instruction.send_peer, "send_peer");
    if (shape.receives) check_fifo(instruction, false, instruction.recv_peer);
    if (shape.sends) check_fifo(instruction, true, instruction.send_peer);

    const auto peer = static_cast<std::size_t>(shape.one_sided ? instruction.send_peer : 0);
    const Agent& source = instruction.opcode == Opcode::peer_read ? program_.agents[peer] : agent;
    const Agent& destination = instruction.opcode == Opcode::peer_write ? program_.agents[peer] : agent;
    if (shape.reads) check_slot(instruction, source, instruction.src, "src");
    if (shape.writes) {
      check_slot(instruction, destination, instruction.dst, "dst");
      if (instruction.dst.space == Space::input && program_.out_of_place) {
        refuse_here(instruction, "it writes an input slot, which belongs to the caller in a program run out of place");
      }
    }
    if (shape.reads && shape.writes) check_chunks(instruction, destination, source, instruction.src, "src");
    check_operands(agent, instruction);
    check_dependencies(agent, instruction);
  }

  void check_peer(const Instruction& instruction, std::int32_t peer, const std::string& field) const {
    if (peer < 0 || static_cast<std::uint32_t>(peer) >= program_.ranks()) {
      refuse_here(instruction, field + " " + std::to_string(peer) + " is not one of the " +
                                   std::to_string(program_.ranks()) + " ranks");
    }
    if (static_cast<std::uint32_t>(peer) == agent_) refuse_here(instruction, field + " is this agent itself");
  }

  /// One lane feeds a connection and one lane drains it: that is why order alone matches messages.
  void check_fifo(const Instruction& instruction, bool sending, std::int32_t peer) {
    const auto [found, is_new] = feeders_.try_emplace({sending, peer, instruction.channel}, lane_);
    if (is_new || found->second == lane_) return;
    refuse_here(instruction, "lane " + std::to_string(found->second) + " already " + (sending ? "feeds" : "drains") +
                                 " the connection " + (sending ? "to" : "from") + " agent " + std::to_string(peer) +
                                 " on channel " + std::to_string(instruction.channel) + "; one lane must");
  }

  void check_slot(const Instruction& instruction, const Agent& owner, Slot slot, const std::string& field) const {
    const auto space = static_cast<std::size_t>(slot.space);
    if (space >= kSpaceNames.size()) refuse_here(instruction, field + " has an unknown space");
    const std::size_t size = slots_of(owner, slot.space).size();
    if (slot.index >= size || instruction.count > size - slot.index) {
      refuse_here(instruction, field + " takes " + std::to_string(instruction.count) + " slot(s) from " +
                                   std::string(kSpaceNames[space]) + "[" + std::to_string(slot.index) +
                                   "], but there are " + std::to_string(size));
    }
  }

  /// A slot is as large as its chunk, so only between slots of one chunk is what moves as long at both ends, whatever
  /// the sizes at launch. The two ends of a message need no such check: a receiver looks at each frame's length.
  void check_chunks(const Instruction& instruction, const Agent& destination, const Agent& source, Slot from,
                    const std::string& field) const {
    const auto& to_chunks = slots_of(destination, instruction.dst.space);
    const auto& from_chunks = slots_of(source, from.space);
    for (std::uint32_t k = 0; k < instruction.count; ++k) {
      const std::uint32_t wanted = to_chunks[instruction.dst.index + k], given = from_chunks[from.index + k];
      if (wanted == given) continue;
      refuse_here(instruction, field + " holds chunk " + std::to_string(given) + " in " + slot_name(from, k) +
                                   ", and dst chunk " + std::to_string(wanted) + " in " +
                                   slot_name(instruction.dst, k) + "; chunks differ in size");
    }
  }

  [[nodiscard]] static std::string slot_name(Slot first, std::uint32_t further) {
    return std::string(kSpaceNames[static_cast<std::size_t>(first.space)]) + "[" +
           std::to_string(first.index + further) + "]";
  }

  void check_operands(const Agent& agent, const Instruction& instruction) const {
    if (instruction.operand_count == 0) return;
    if (instruction.opcode != Opcode::reduce) refuse_here(instruction, "only reduce takes operands");
    if (instruction.first_operand > agent.operands.size() ||
        instruction.operand_count > agent.operands.size() - instruction.first_operand) {
      refuse_here(instruction, "its operands reach past the agent's " + std::to_string(agent.operands.size()));
    }
    for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
      const Slot operand = agent.operands[instruction.first_operand + i];
      const std::string field = "operand " + std::to_string(i);
      check_slot(instruction, agent, operand, field);
      check_chunks(instruction, agent, agent, operand, field);
    }
  }

  void check_dependencies(const Agent& agent, const Instruction& instruction) const {
    if (instruction.dependency_count == 0) return;
    if (instruction.first_dependency > agent.dependencies.size() ||
        instruction.dependency_count > agent.dependencies.size() - instruction.first_dependency) {
      refuse_here(instruction, "its dependencies reach past the agent's " + std::to_string(agent.dependencies.size()));
    }
    for (std::uint32_t i = 0; i < instruction.dependency_count; ++i) {
      const Dependency on = agent.dependencies[instruction.first_dependency + i];
      if (on.lane >= agent.lanes.size() || on.instruction >= agent.lanes[on.lane].size()) {
        refuse_here(instruction, "it depends on lane " + std::to_string(on.lane) + ", instruction " +
                                     std::to_string(on.instruction) + ", which does not exist");
      }
      if (on.lane == lane_ && on.instruction >= position_) {
        refuse_here(instruction, "it depends on instruction " + std::to_string(on.instruction) +
                                     " of its own lane, which never runs before it");
      }
    }
  }

  const Program& program_;
  std::uint32_t agent_ = 0;
  std::size_t lane_ = 0;
  std::size_t position_ = 0;
  std::map<std::tuple<bool, std::int32_t, std::uint16_t>, std::size_t> feeders_;
};

}  // namespace

Collective collective_named(std::string_view name) {
  const auto found = std::ranges::find(kCollectives, name, &CollectiveFacts::name);
  if (found != kCollectives.end()) return static_cast<Collective>(found - kCollectives.begin());
  std::string message = "there is no collective '" + std::string(name) + "'; there are";
  for (const CollectiveFacts& known : kCollectives) {
    message += (known.name == kCollectives.front().name ? " " : ", ") + std::string(known.name);
  }
  throw std::invalid_argument(message);
}

std::string_view name_of(Opcode opcode) { return shape_of(opcode).name; }
bool sends(Opcode opcode) { return shape_of(opcode).sends; }
bool receives(Opcode opcode) { return shape_of(opcode).receives; }

std::uint32_t Program::channels() const {
  std::uint32_t highest = 0;
  for_each_instruction(*this, [&](const Agent&, const Instruction& instruction) {
    if (sends(instruction.opcode) || receives(instruction.opcode)) {
      highest = std::max<std::uint32_t>(highest, instruction.channel);
    }
  });
  return highest + 1;
}

std::uint32_t Program::message_slots() const {
  std::uint32_t largest = 1;
  for_each_instruction(*this, [&](const Agent&, const Instruction& instruction) {
    if (carries_data(instruction.opcode)) largest = std::max(largest, instruction.count);
  });
  return largest;
}

bool Program::one_sided() const {
  return any_instruction(*this, [](const Instruction& instruction) { return shape_of(instruction.opcode).one_sided; });
}

bool Program::needs_size_matrix() const {
  for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
    for (const std::uint32_t chunk : agents[rank].scratch) {
      const std::uint32_t block = chunks[chunk].block;
      if (!starts_with(collective, ranks(), root, rank, block) && !ends_with(collective, ranks(), root, rank, block)) {
        return true;
      }
    }
  }
  return false;
}

std::uint64_t Program::hash() const {
  Fnv1a hash;
  hash.add(std::uint64_t{name.size()});
  for (const char character : name) hash.add(static_cast<unsigned char>(character));
  hash.add(static_cast<std::uint8_t>(collective));
  hash.add(root);
  hash.add(fifo_depth);
  hash.add(static_cast<std::uint8_t>(out_of_place));
  hash.add(static_cast<std::uint8_t>(in_place));
  hash.add(static_cast<std::uint8_t>(rounds_per_hop));
  hash.add(chunks.size());
  for (const Chunk& chunk : chunks) {
    hash.add(chunk.block);
    hash.add(chunk.weight);
  }
  hash.add(agents.size());
  for (const Agent& agent : agents) {
    hash.add(agent.input);
    hash.add(agent.output);
    hash.add(agent.scratch);
    hash.add(agent.lanes.size());
    for (const auto& lane : agent.lanes) {
      hash.add(lane.size());
      for (const Instruction& instruction : lane) {
        hash.add(static_cast<std::uint8_t>(instruction.opcode));
        hash.add(instruction.dst);
        hash.add(instruction.src);
        hash.add(instruction.count);
        hash.add(static_cast<std::uint32_t>(instruction.recv_peer));
        hash.add(static_cast<std::uint32_t>(instruction.send_peer));
        hash.add(instruction.channel);
        // What the operands and dependencies are, not where the agent's arrays keep them.
        hash.add(instruction.operand_count);
        for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
          hash.add(agent.operands[instruction.first_operand + i]);
        }
        hash.add(instruction.dependency_count);
        for (std::uint32_t i = 0; i < instruction.dependency_count; ++i) {
          const Dependency& on = agent.dependencies[instruction.first_dependency + i];
          hash.add(on.lane);
          hash.add(on.instruction);
        }
      }
    }
  }
  const bool skewed = any_instruction(*this, [](const Instruction& instruction) { return instruction.skew > 0; });
  if (skewed) {  // a Program without skews has the hash that it had before there were any
    for_each_instruction(*this, [&](const Agent&, const Instruction& instruction) { hash.add(instruction.skew); });
  }
  return hash.value();
}

void Program::validate() const { Validator(*this).run(); }

}  // namespace syntony
