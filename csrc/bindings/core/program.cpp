// Python face of Program, ProgramBuilder and the builders. Programs cross as int32 NumPy tables ("columns").
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/operators.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <stdexcept>

#include "core/group/selector.hpp"
#include "core/program/algorithms/algorithms.hpp"
#include "core/program/algorithms/dbt.hpp"
#include "core/program/program.hpp"
#include "core/program/program_builder.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

using Table = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr std::size_t kChunkColumns = 2, kSlotColumns = 3, kInstructionColumns = 14, kPairColumns = 2;

/// Rows of an int32 table with a name, so that a bad entry can be pointed at.
class Rows {
 public:
  Rows(std::string name, const Table& table, std::size_t columns) : name_(std::move(name)), table_(table) {
    if (table.shape(1) != columns) {
      throw std::invalid_argument(name_ + " has " + std::to_string(table.shape(1)) + " columns; it must have " +
                                  std::to_string(columns));
    }
  }
  [[nodiscard]] std::size_t size() const { return table_.shape(0); }
  [[nodiscard]] std::int32_t at(std::size_t row, std::size_t column) const {
    return table_.data()[row * table_.shape(1) + column];
  }
  /// The entry as a number in [0, limit).
  [[nodiscard]] std::uint32_t at(std::size_t row, std::size_t column, const char* field,
                                 std::uint32_t limit = std::numeric_limits<std::uint32_t>::max()) const {
    const std::int32_t value = at(row, column);
    if (value < 0 || static_cast<std::uint32_t>(value) >= limit) {
      refuse(row, std::string(field) + " is " + std::to_string(value) +
                      (value < 0 ? "; it must not be negative" : "; it must be below " + std::to_string(limit)));
    }
    return static_cast<std::uint32_t>(value);
  }
  [[nodiscard]] Slot slot_at(std::size_t row, std::size_t column) const {
    return {static_cast<Space>(at(row, column, "space", 3)), at(row, column + 1, "slot index")};
  }
  [[noreturn]] void refuse(std::size_t row, const std::string& what) const {
    throw std::invalid_argument(name_ + " row " + std::to_string(row) + ": " + what);
  }

 private:
  std::string name_;
  const Table& table_;
};

void read_slots(const Rows& rows, Program& program) {
  std::uint32_t last_agent = 0, last_space = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::uint32_t agent = rows.at(row, 0, "agent", program.ranks());
    const std::uint32_t space = rows.at(row, 1, "space", 3);
    if (agent < last_agent || (agent == last_agent && space < last_space)) {
      rows.refuse(row, "rows go in order of agent, space, slot index");
    }
    last_agent = agent, last_space = space;
    Agent& to = program.agents[agent];
    std::vector<std::uint32_t>* const spaces[] = {&to.input, &to.output, &to.scratch};
    spaces[space]->push_back(rows.at(row, 2, "chunk"));
  }
}

void read_instructions(const Rows& rows, const Rows& operands, const Rows& dependencies, Program& program) {
  std::size_t next_operand = 0, next_dependency = 0;
  std::uint32_t last_agent = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const std::uint32_t agent = rows.at(row, 0, "agent", program.ranks());
    const std::uint32_t lane = rows.at(row, 1, "lane");
    Agent& to = program.agents[agent];
    const auto lanes = static_cast<std::uint32_t>(to.lanes.size());
    if (agent < last_agent || lane > lanes || lane + 1 < lanes) {
      rows.refuse(row, "lane " + std::to_string(lane) + " of agent " + std::to_string(agent) +
                           " is out of turn; rows go in order of agent, lane, position, and lanes have no holes");
    }
    last_agent = agent;
    if (lane == lanes) to.lanes.emplace_back();

    Instruction instruction;
    instruction.opcode = static_cast<Opcode>(rows.at(row, 2, "opcode", kOpcodes));
    instruction.dst = rows.slot_at(row, 3);
    instruction.src = rows.slot_at(row, 5);
    instruction.count = rows.at(row, 7, "count");
    instruction.recv_peer = rows.at(row, 8);
    instruction.send_peer = rows.at(row, 9);
    instruction.channel = static_cast<std::uint16_t>(rows.at(row, 10, "channel", 1U << 16));
    instruction.operand_count = rows.at(row, 11, "operand_count");
    instruction.dependency_count = rows.at(row, 12, "dependency_count");
    instruction.skew = static_cast<std::uint16_t>(rows.at(row, 13, "skew", 1U << 16));
    instruction.first_operand = static_cast<std::uint32_t>(to.operands.size());
    instruction.first_dependency = static_cast<std::uint32_t>(to.dependencies.size());
    if (instruction.operand_count > operands.size() - next_operand) rows.refuse(row, "`operands` ends too early");
    if (instruction.dependency_count > dependencies.size() - next_dependency) {
      rows.refuse(row, "`dependencies` ends too early");
    }
    for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
      to.operands.push_back(operands.slot_at(next_operand++, 0));
    }
    for (std::uint32_t i = 0; i < instruction.dependency_count; ++i, ++next_dependency) {
      to.dependencies.push_back(
          {dependencies.at(next_dependency, 0, "lane"), dependencies.at(next_dependency, 1, "instruction")});
    }
    to.lanes.back().push_back(instruction);
  }
  if (next_operand != operands.size()) operands.refuse(next_operand, "no instruction takes it");
  if (next_dependency != dependencies.size()) dependencies.refuse(next_dependency, "no instruction takes it");
}

Program from_columns(std::string name, std::string_view collective, std::uint32_t root, std::uint32_t ranks,
                     std::uint32_t fifo_depth, bool out_of_place, bool in_place, bool rounds_per_hop,
                     const Table& chunks, const Table& slots, const Table& instructions, const Table& operands,
                     const Table& dependencies) {
  Program program;
  program.name = std::move(name);
  program.collective = collective_named(collective);
  program.root = root;
  program.fifo_depth = fifo_depth;
  program.out_of_place = out_of_place;
  program.in_place = in_place;
  program.rounds_per_hop = rounds_per_hop;
  program.agents.resize(ranks);
  const Rows chunk_rows("chunks", chunks, kChunkColumns);
  for (std::size_t row = 0; row < chunk_rows.size(); ++row) {
    program.chunks.push_back({chunk_rows.at(row, 0, "block"), chunk_rows.at(row, 1, "weight")});
  }
  read_slots(Rows("slots", slots, kSlotColumns), program);
  read_instructions(Rows("instructions", instructions, kInstructionColumns), Rows("operands", operands, kPairColumns),
                    Rows("dependencies", dependencies, kPairColumns), program);
  program.validate();
  return program;
}

/// Grows row by row, then becomes a NumPy array that owns the memory.
class TableWriter {
 public:
  explicit TableWriter(std::size_t columns) : columns_(columns) {}
  template <typename... Values>
  void row(Values... values) {
    (data_.push_back(static_cast<std::int32_t>(values)), ...);
  }
  nb::object to_numpy() {
    auto owned = std::make_unique<std::vector<std::int32_t>>(std::move(data_));
    std::int32_t* const data = owned->data();
    const std::size_t rows = owned->size() / columns_;
    const nb::capsule owner(owned.release(),
                            [](void* memory) noexcept { delete static_cast<std::vector<std::int32_t>*>(memory); });
    return nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>>(data, {rows, columns_}, owner).cast();
  }

 private:
  std::size_t columns_;
  std::vector<std::int32_t> data_;
};

nb::dict columns(const Program& program) {
  TableWriter chunks(kChunkColumns), slots(kSlotColumns), instructions(kInstructionColumns), operands(kPairColumns),
      dependencies(kPairColumns);
  for (const Chunk& chunk : program.chunks) chunks.row(chunk.block, chunk.weight);
  for (std::uint32_t rank = 0; rank < program.ranks(); ++rank) {
    const Agent& agent = program.agents[rank];
    const std::vector<std::uint32_t>* const spaces[] = {&agent.input, &agent.output, &agent.scratch};
    for (int space = 0; space < 3; ++space) {
      for (const std::uint32_t chunk : *spaces[space]) slots.row(rank, space, chunk);
    }
    for (std::size_t lane = 0; lane < agent.lanes.size(); ++lane) {
      for (const Instruction& i : agent.lanes[lane]) {
        instructions.row(rank, lane, i.opcode, i.dst.space, i.dst.index, i.src.space, i.src.index, i.count, i.recv_peer,
                         i.send_peer, i.channel, i.operand_count, i.dependency_count, i.skew);
        for (const Slot operand : std::span(agent.operands).subspan(i.first_operand, i.operand_count)) {
          operands.row(operand.space, operand.index);
        }
        for (const Dependency on : std::span(agent.dependencies).subspan(i.first_dependency, i.dependency_count)) {
          dependencies.row(on.lane, on.instruction);
        }
      }
    }
  }
  nb::dict all;
  all["name"] = program.name;
  all["collective"] = name_of(program.collective);
  all["root"] = program.root;
  all["ranks"] = program.ranks();
  all["fifo_depth"] = program.fifo_depth;
  all["out_of_place"] = program.out_of_place;
  all["in_place"] = program.in_place;
  all["rounds_per_hop"] = program.rounds_per_hop;
  all["chunks"] = chunks.to_numpy();
  all["slots"] = slots.to_numpy();
  all["instructions"] = instructions.to_numpy();
  all["operands"] = operands.to_numpy();
  all["dependencies"] = dependencies.to_numpy();
  return all;
}

void bind_value(nb::module_& m) {
  nb::class_<Program>(m, "Program", "Who does what: one agent per rank, lanes of instructions over slots. Immutable.")
      .def_static("from_columns", &from_columns, nb::kw_only(), "name"_a, "collective"_a, "root"_a, "ranks"_a,
                  "fifo_depth"_a, "out_of_place"_a, "in_place"_a, "rounds_per_hop"_a, "chunks"_a, "slots"_a,
                  "instructions"_a, "operands"_a, "dependencies"_a,
                  "A validated Program from int32 tables; ValueError names the first bad row or instruction.")
      .def("columns", &columns, "The keyword arguments of `from_columns` that give this Program back.")
      .def_prop_ro("name", [](const Program& self) { return self.name; })
      .def_prop_ro("collective", [](const Program& self) { return name_of(self.collective); })
      .def_prop_ro("ranks", &Program::ranks)
      .def_prop_ro("root", [](const Program& self) { return self.root; })
      .def_prop_ro("hash", &Program::hash, "64-bit FNV-1a over every field: what ranks agree on.")
      .def_prop_ro("fifo_depth", [](const Program& self) { return self.fifo_depth; })
      .def_prop_ro("channels", &Program::channels)
      .def_prop_ro("message_slots", &Program::message_slots)
      .def_prop_ro("one_sided", &Program::one_sided)
      .def_prop_ro("needs_size_matrix", &Program::needs_size_matrix)
      .def_prop_ro("in_place", [](const Program& self) { return self.in_place; })
      .def_prop_ro("out_of_place", [](const Program& self) { return self.out_of_place; })
      .def_prop_ro("rounds_per_hop", [](const Program& self) { return self.rounds_per_hop; })
      .def("__repr__", [](const Program& self) {
        return "Program('" + self.name + "', " + std::string(name_of(self.collective)) +
               ", ranks=" + std::to_string(self.ranks()) + ")";
      });
}

using SlotPair = std::pair<std::uint32_t, std::uint32_t>;

Slot slot_of(const SlotPair& pair) {
  if (pair.first > 2) throw std::invalid_argument("there is no space " + std::to_string(pair.first) + "; there are 3");
  return {static_cast<Space>(pair.first), pair.second};
}

void append(ProgramBuilder& builder, std::uint32_t rank, std::uint32_t lane, std::uint32_t opcode, const SlotPair& dst,
            const SlotPair& src, std::uint32_t count, std::int32_t recv_peer, std::int32_t send_peer,
            std::uint16_t channel, const std::vector<SlotPair>& operands) {
  if (opcode >= kOpcodes) throw std::invalid_argument("there is no opcode " + std::to_string(opcode));
  Instruction instruction;
  instruction.opcode = static_cast<Opcode>(opcode);
  instruction.dst = slot_of(dst);
  instruction.src = slot_of(src);
  instruction.count = count;
  instruction.recv_peer = recv_peer;
  instruction.send_peer = send_peer;
  instruction.channel = channel;
  std::vector<Slot> further;
  for (const SlotPair& operand : operands) further.push_back(slot_of(operand));
  builder.append(rank, lane, instruction, further);
}

void bind_builder(nb::module_& m) {
  nb::class_<Slot>(m, "Slot", "A place for one chunk: space (0 input, 1 output, 2 scratch) and index.")
      .def_prop_ro("space", [](const Slot& self) { return static_cast<int>(self.space); })
      .def_ro("index", &Slot::index)
      .def(nb::self == nb::self)
      .def("__hash__",
           [](const Slot& self) { return std::size_t{self.index} * 3 + static_cast<std::size_t>(self.space); })
      .def("__repr__", [](const Slot& self) {
        static constexpr std::string_view kNames[] = {"input", "output", "scratch"};
        return std::string(kNames[static_cast<std::size_t>(self.space)]) + "[" + std::to_string(self.index) + "]";
      });
  nb::class_<ProgramBuilder>(m, "ProgramBuilder",
                             "Writes a Program from one logical order of moves; allocates lanes and dependencies.")
      .def(
          "__init__",
          [](ProgramBuilder* self, std::string name, std::string_view collective, std::uint32_t ranks,
             std::uint32_t root, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& chunks) {
            std::vector<Chunk> table;
            for (const auto& [block, weight] : chunks) table.push_back({block, weight});
            new (self) ProgramBuilder(std::move(name), collective_named(collective), ranks, root, std::move(table));
          },
          "name"_a, "collective"_a, "ranks"_a, "root"_a, "chunks"_a, "`chunks`: (block, weight) rows.")
      .def("input", &ProgramBuilder::input, "rank"_a, "chunk"_a)
      .def("output", &ProgramBuilder::output, "rank"_a, "chunk"_a)
      .def("scratch", &ProgramBuilder::scratch, "rank"_a, "chunk"_a, "A new slot, as large as `chunk`.")
      .def("place", &ProgramBuilder::place, "rank"_a, "chunk"_a, "The output slot of `chunk`, else a new scratch slot.")
      .def("copy", &ProgramBuilder::copy, "rank"_a, "dst"_a, "src"_a)
      .def(
          "reduce",
          [](ProgramBuilder& self, std::uint32_t rank, Slot dst, const std::vector<Slot>& sources) {
            self.reduce(rank, dst, sources);
          },
          "rank"_a, "dst"_a, "sources"_a, "dst = sources[0] + sources[1] + .., in this order, rounded once.")
      .def("transfer", &ProgramBuilder::transfer, "src_rank"_a, "src"_a, "dst_rank"_a, "dst"_a, "channel"_a = 0,
           "count"_a = 1, "`count` consecutive slots go in one message.")
      .def("transfer_reduce", &ProgramBuilder::transfer_reduce, "src_rank"_a, "src"_a, "dst_rank"_a, "dst"_a,
           "operand"_a, "channel"_a = 0, "count"_a = 1, "dst = message + operand.")
      .def("append", &append, "rank"_a, "lane"_a, "opcode"_a, "dst"_a, "src"_a, "count"_a, "recv_peer"_a, "send_peer"_a,
           "channel"_a, "operands"_a = nb::list(),
           "One instruction into a lane of the caller's choice; slots are (space, index).")
      .def("skew", &ProgramBuilder::skew, "slices"_a, "The moves that follow are so many slices behind.")
      .def("finish", &ProgramBuilder::finish, "The Program so far, validated.");
}

void bind_algorithms(nb::module_& m) {
  nb::class_<Algorithm>(m, "Algorithm", "A builder of Programs: an entry of the table `algorithms()`.")
      .def_ro("name", &Algorithm::name)
      .def_ro("description", &Algorithm::description)
      .def_prop_ro("collectives",
                   [](const Algorithm& self) {
                     nb::list names;
                     for (const Collective collective : self.collectives) names.append(name_of(collective));
                     return nb::tuple(names);
                   })
      .def("__repr__", [](const Algorithm& self) { return "Algorithm('" + std::string(self.name) + "')"; });
  m.def(
      "algorithms", [] { return std::vector<Algorithm>(algorithms().begin(), algorithms().end()); },
      "The table of C++ builders.");
  m.def(
      "algorithm_names", [](std::string_view collective) { return Selector::names(collective_named(collective)); },
      "collective"_a, "Whom one may ask for by name in this collective, beside `auto` and what is loaded.");
  m.def(
      "automatic_choice",
      [](std::string_view collective, std::size_t bytes, const Boxes& boxes) {
        std::uint32_t ranks = 0;
        for (const auto& box : boxes) ranks += static_cast<std::uint32_t>(box.size());
        return Selector(ranks, boxes).choice(collective_named(collective), 0, bytes, "auto");
      },
      "collective"_a, "bytes"_a, "boxes"_a,
      "The algorithm that `auto` means among the ranks of these hosts where no table says otherwise, and why.");
  m.def(
      "build",
      [](std::string_view name, std::string_view collective, std::uint32_t ranks, std::uint32_t root,
         const std::optional<Boxes>& boxes) {
        const nb::gil_scoped_release unlocked;
        return build(name, collective_named(collective), ranks, root, boxes.value_or(Boxes{}));
      },
      "name"_a, "collective"_a, "ranks"_a, "root"_a = 0, "boxes"_a = nb::none(),
      "The Program of a named algorithm; `boxes` (ranks of each box) shapes `hierarchical`.");
  m.def("boxes_for", &boxes_for, "ranks"_a, "About sqrt(ranks) boxes of nearly equal size.");
  m.def(
      "double_binary_tree",
      [](std::uint32_t ranks) {
        const auto trees = double_binary_tree(ranks);
        return std::pair(trees[0].parent, trees[1].parent);
      },
      "ranks"_a, "The parents in both trees; a root is its own parent.");
}

}  // namespace
}  // namespace syntony

void bind_program(nb::module_& m) {
  syntony::bind_value(m);
  syntony::bind_builder(m);
  syntony::bind_algorithms(m);
}
