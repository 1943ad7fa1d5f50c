// Program::validate: what holds for every Program in memory.
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <tuple>

#include "core/program/program.hpp"

namespace syntony {
namespace {

constexpr std::uint32_t kMostRanks = 65'535;  // so that the blocks of an all_to_all can be counted in 32 bits
constexpr std::uint32_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::array<std::string_view, 3> kSpaceNames{"input", "output", "scratch"};

/// The value as its writer meant it: signed.
template <typename Number>
std::string told(Number number) {
  return std::to_string(static_cast<std::int32_t>(number));
}

std::string told(Slot first, std::uint32_t further = 0) {
  return std::string(kSpaceNames[static_cast<std::size_t>(first.space)]) + "[" + told(first.index + further) + "]";
}

/// The checks of one Program, each a loop over one table; every error says where it is.
class Validator {
 public:
  explicit Validator(Program& program) : program_(program) {}

  void run() {
    check_header();
    check_chunks();
    check_slots();
    find_lanes();
    find_references();
    for (row_ = 0; row_ < program_.instructions.size(); ++row_) check_instruction(program_.instructions[row_]);
  }

 private:
  [[noreturn]] static void refuse(const std::string& what) { throw ProgramError(what); }
  [[noreturn]] void refuse_here(const std::string& what) const { refuse(program_.where(row_) + ": " + what); }

  void check_header() const {
    const std::uint32_t ranks = program_.ranks;
    if (program_.name.empty()) refuse("a program needs a name");
    if (ranks == 0 || ranks > kMostRanks) {
      refuse("a program has 1.." + told(kMostRanks) + " ranks, not " + told(ranks));
    }
    if (static_cast<std::size_t>(program_.collective) >= kCollectives.size()) refuse("a program needs a collective");
    if (program_.root >= ranks) {
      refuse("root " + told(program_.root) + " is not a rank; ranks are 0.." + told(ranks - 1));
    }
    if (program_.fifo_depth == 0 || program_.fifo_depth > kMost) {
      refuse("fifo_depth is " + told(program_.fifo_depth) + "; a connection holds at least 1 message");
    }
    if (!program_.out_of_place && !program_.in_place) refuse("a program must claim out_of_place, in_place or both");
  }

  void check_chunks() const {
    const std::uint32_t blocks = block_count(program_.collective, program_.ranks);
    if (program_.chunks.empty()) refuse("table 'chunks' is empty; every block has at least one chunk");
    for (std::size_t i = 0; i < program_.chunks.size(); ++i) {
      const auto refuse_chunk = [&](const std::string& what) { refuse("chunk " + std::to_string(i) + what); };
      const auto [block, weight] = program_.chunks[i];
      const bool next = i == 0 ? block == 0 : block - program_.chunks[i - 1].block <= 1;
      if (!next) refuse_chunk(" is of block " + told(block) + "; chunks go block by block: 0, .., 0, 1, ..");
      if (block >= blocks) {
        refuse_chunk(" is of block " + told(block) + ", but " + std::string(name_of(program_.collective)) + " on " +
                     told(program_.ranks) + " ranks has " + told(blocks));
      }
      if (weight == 0 || weight > kMost) refuse_chunk(" has weight " + told(weight) + "; a weight is at least 1");
    }
  }

  void check_slots() {
    const std::size_t spaces = std::size_t{program_.ranks} * 3;
    program_.space_start.assign(spaces + 1, 0);
    std::size_t last = 0;
    std::vector<std::size_t> holder(program_.chunks.size() * 2, spaces);  // by chunk: row of its slot
    for (std::size_t i = 0; i < program_.slots.size(); ++i) {
      const auto [agent, space, chunk] = program_.slots[i];
      const auto refuse_slot = [&](const std::string& what) { refuse("slot row " + std::to_string(i) + what); };
      const auto in_range = [&](std::uint32_t value, std::size_t limit, const char* what) {
        if (value < limit) return;
        refuse_slot(std::string(" has ") + what + " " + told(value) + "; it must be 0.." + std::to_string(limit - 1));
      };
      in_range(agent, program_.ranks, "agent");
      in_range(static_cast<std::uint32_t>(space), kSpaceNames.size(), "space");
      in_range(chunk, program_.chunks.size(), "chunk");
      const std::size_t at = std::size_t{agent} * 3 + static_cast<std::size_t>(space);
      if (at < last) refuse_slot(" is out of order; slots go by agent, then space");
      last = at;
      ++program_.space_start[at + 1];
      if (space != Space::scratch)
        check_user_slot(i, holder[std::size_t{chunk} * 2 + static_cast<std::size_t>(space)], at);
    }
    for (std::size_t at = 0; at < spaces; ++at) program_.space_start[at + 1] += program_.space_start[at];
  }

  /// A slot of the user's input or output: the rank must have that memory, and only one slot for it.
  void check_user_slot(std::size_t row, std::size_t& holder, std::size_t at) const {
    const auto [agent, space, chunk] = program_.slots[row];
    const std::uint32_t block = program_.chunks[chunk].block;
    const auto refuse_slot = [&, agent = agent, space = space, chunk = chunk](const std::string& what) {
      const std::string name(kSpaceNames[static_cast<std::size_t>(space)]);
      refuse("slot row " + std::to_string(row) + ": the " + name + " of rank " + told(agent) + what + " chunk " +
             told(chunk) + " of block " + told(block));
    };
    const auto holds = space == Space::input ? starts_with : ends_with;
    if (!holds(program_.collective, program_.ranks, program_.root, agent, block)) refuse_slot(" cannot hold");
    if (holder == at) refuse_slot(" holds twice");
    holder = at;
  }

  /// Rows are ordered by agent, lane, position; lanes have no gaps.
  void find_lanes() {
    program_.lane_start.clear();
    program_.first_lane.assign(1, 0);
    std::uint32_t lanes = 0;  // of the current agent so far
    for (row_ = 0; row_ < program_.instructions.size(); ++row_) {
      const Instruction& i = program_.instructions[row_];
      if (i.agent >= program_.ranks) {
        refuse_here("agent " + told(i.agent) + " does not exist; agents are 0.." + told(program_.ranks - 1));
      }
      if (i.agent + 1 < program_.first_lane.size()) refuse_here("instructions go by agent, then lane, then position");
      while (program_.first_lane.size() <= i.agent) {
        program_.first_lane.push_back(static_cast<std::uint32_t>(program_.lane_start.size()));
        lanes = 0;
      }
      if (i.lane > lanes || i.lane + 1 < lanes) {
        refuse_here("lane " + told(i.lane) + " is out of order; an agent's lanes are numbered 0, 1, ..");
      }
      if (i.lane == lanes) {
        program_.lane_start.push_back(static_cast<std::uint32_t>(row_));
        ++lanes;
      }
    }
    const auto all = static_cast<std::uint32_t>(program_.lane_start.size());
    program_.first_lane.resize(std::size_t{program_.ranks} + 1, all);
    program_.lane_start.push_back(static_cast<std::uint32_t>(program_.instructions.size()));
  }

  /// Which rows of `operands` and `dependencies` each instruction owns; together they must own all.
  void find_references() {
    std::uint64_t operands = 0, dependencies = 0;
    for (row_ = 0; row_ < program_.instructions.size(); ++row_) {
      Instruction& i = program_.instructions[row_];
      if (i.operand_count > kMost) refuse_here("operand_count " + told(i.operand_count) + " is negative");
      if (i.dependency_count > kMost) refuse_here("dependency_count " + told(i.dependency_count) + " is negative");
      i.first_operand = static_cast<std::uint32_t>(operands);
      i.first_dependency = static_cast<std::uint32_t>(dependencies);
      operands += i.operand_count;
      dependencies += i.dependency_count;
    }
    const auto all = [&](std::uint64_t named, std::size_t rows, const std::string& table) {
      if (named == rows) return;
      refuse("instructions name " + std::to_string(named) + " " + table + ", table '" + table + "' has " +
             std::to_string(rows) + " rows");
    };
    all(operands, program_.operands.size(), "operands");
    all(dependencies, program_.dependencies.size(), "dependencies");
  }

  void check_instruction(const Instruction& i) {
    if (static_cast<std::size_t>(i.opcode) >= kOpcodes.size()) {
      refuse_here("there is no such opcode; opcodes are 0.." + std::to_string(kOpcodes.size() - 1));
    }
    const OpcodeFacts& facts = facts_of(i.opcode);
    if (i.count == 0 || i.count > kMost) refuse_here("count is " + told(i.count) + "; it must be at least 1");
    if (i.channel > kMostChannel) refuse_here("channel " + told(i.channel) + " is not in 0..65535");
    if (i.skew > kMostSkew) refuse_here("skew " + told(i.skew) + " is not in 0..65535");
    if (row_ > 0) {
      const Instruction& before = program_.instructions[row_ - 1];
      if (before.agent == i.agent && before.lane == i.lane && i.skew < before.skew) {
        refuse_here("skew " + told(i.skew) + " comes after skew " + told(before.skew) +
                    "; skews never decrease along a lane");
      }
    }
    if (facts.receives) check_connection(i, false, i.recv_peer);
    if (facts.sends) check_connection(i, true, i.send_peer);
    if (facts.one_sided) check_peer(i, i.send_peer, "send_peer");

    const auto peer = static_cast<std::uint32_t>(i.send_peer);
    const std::uint32_t source = i.opcode == Opcode::peer_read ? peer : i.agent;
    const std::uint32_t destination = i.opcode == Opcode::peer_write ? peer : i.agent;
    check_space(i.src, "src");
    check_space(i.dst, "dst");
    if (facts.reads) check_slot(i, source, i.src, "src");
    if (facts.writes) {
      check_slot(i, destination, i.dst, "dst");
      if (i.dst.space == Space::input && program_.out_of_place) {
        refuse_here("it writes " + told(i.dst) + ", which is the user's in a program that may run out of place");
      }
    }
    if (facts.reads && facts.writes) check_chunks_of(i, destination, source, i.src, "src");
    check_operands(i);
    check_dependencies(i);
  }

  void check_peer(const Instruction& i, std::int32_t peer, const std::string& field) const {
    if (peer < 0 || static_cast<std::uint32_t>(peer) >= program_.ranks) {
      refuse_here(field + " " + told(peer) + " is not a rank; ranks are 0.." + told(program_.ranks - 1));
    }
    if (static_cast<std::uint32_t>(peer) == i.agent) refuse_here(field + " " + told(peer) + " is the rank itself");
  }

  /// One lane feeds a connection and one lane drains it, so order alone matches messages.
  void check_connection(const Instruction& i, bool sending, std::int32_t peer) {
    check_peer(i, peer, sending ? "send_peer" : "recv_peer");
    const auto [found, is_new] = user_of_.try_emplace({i.agent, peer, i.channel, sending}, row_);
    const std::size_t first = found->second;
    if (is_new || program_.instructions[first].lane == i.lane) return;
    const std::string from = told(sending ? i.agent : static_cast<std::uint32_t>(peer));
    const std::string to = told(sending ? static_cast<std::uint32_t>(peer) : i.agent);
    const std::string verb = sending ? "fed" : "drained";
    refuse_here("rank " + from + " -> rank " + to + " on channel " + told(i.channel) + " is already " + verb + " by " +
                program_.where(first) + "; a connection must be " + verb +
                " by one lane, so that order matches messages");
  }

  void check_space(Slot slot, const std::string& field) const {
    if (static_cast<std::size_t>(slot.space) >= kSpaceNames.size()) {
      refuse_here(field + " space " + told(slot.space) + " is not 0 (input), 1 (output) or 2 (scratch)");
    }
    if (slot.index > kMost) refuse_here(field + " index " + told(slot.index) + " is negative");
  }

  [[nodiscard]] std::span<const SlotRow> slots_of(std::uint32_t agent, Space space) const {
    const std::size_t at = std::size_t{agent} * 3 + static_cast<std::size_t>(space);
    return std::span(program_.slots)
        .subspan(program_.space_start[at], program_.space_start[at + 1] - program_.space_start[at]);
  }

  void check_slot(const Instruction& i, std::uint32_t owner, Slot slot, const std::string& field) const {
    check_space(slot, field);
    const std::size_t size = slots_of(owner, slot.space).size();
    if (slot.index < size && i.count <= size - slot.index) return;
    refuse_here(field + " takes " + told(i.count) + " slot(s) from " + told(slot) + " of rank " + told(owner) +
                ", which has " + std::to_string(size) + " of that space");
  }

  /// A slot is as large as its chunk, so both ends of a move within an agent have the same size at any launch only if
  /// their slots hold the same chunk. Messages need no such check: a receiver checks the length of each frame.
  void check_chunks_of(const Instruction& i, std::uint32_t destination, std::uint32_t source, Slot from,
                       const std::string& field) const {
    const auto to_slots = slots_of(destination, i.dst.space);
    const auto from_slots = slots_of(source, from.space);
    for (std::uint32_t k = 0; k < i.count; ++k) {
      const std::uint32_t wanted = to_slots[i.dst.index + k].chunk, given = from_slots[from.index + k].chunk;
      if (wanted == given) continue;
      refuse_here(field + " holds chunk " + told(given) + " in " + told(from, k) + ", and dst chunk " + told(wanted) +
                  " in " + told(i.dst, k) + "; chunks differ in size");
    }
  }

  void check_operands(const Instruction& i) const {
    const std::span operands = program_.operands_of(i);
    if (i.opcode == Opcode::reduce && operands.empty()) {
      refuse_here("a reduce has a source and at least one further operand");
    }
    if (i.opcode != Opcode::reduce && !operands.empty()) refuse_here("only reduce has operands");
    for (std::size_t number = 0; number < operands.size(); ++number) {
      const std::string field = "operand " + std::to_string(number);
      check_slot(i, i.agent, operands[number], field);
      check_chunks_of(i, i.agent, i.agent, operands[number], field);
    }
  }

  void check_dependencies(const Instruction& i) const {
    const Lanes lanes = program_.agent(i.agent).lanes;
    for (const Dependency on : program_.dependencies_of(i)) {
      const auto refuse_it = [&](const std::string& why) {
        refuse_here("it waits for lane " + told(on.lane) + ", instruction " + told(on.instruction) + why);
      };
      if (on.lane >= lanes.size() || on.instruction >= lanes[on.lane].size()) refuse_it(", which does not exist");
      if (on.lane == i.lane && &lanes[on.lane][on.instruction] >= &i) refuse_it(", which never runs before it");
    }
  }

  Program& program_;
  std::size_t row_ = 0;
  std::map<std::tuple<std::uint32_t, std::int32_t, std::uint32_t, bool>, std::size_t> user_of_;  // first instruction
};

}  // namespace

void Program::validate() {
  Validator(*this).run();
  // No rows come after this. What was reserved for more is up to half of a large Program, and every rank holds it.
  const auto fit = [](auto&... tables) { (tables.shrink_to_fit(), ...); };
  fit(chunks, slots, instructions, operands, dependencies, space_start, lane_start, first_lane);
}

}  // namespace syntony
