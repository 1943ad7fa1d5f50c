// Python bindings of Program, ProgramBuilder and the builders. A Program's tables are one memory, seen from both sides.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/operators.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "core/program/algorithms/algorithms.hpp"
#include "core/program/algorithms/dbt.hpp"
#include "core/program/program.hpp"
#include "core/program/program_builder.hpp"
#include "core/selection/selector.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

// ---- tables: memory of the core, which Python sees as NumPy arrays -------------------------------------------------

constexpr std::size_t kInstructionColumns = 14;  // the remaining fields of a row are filled in by the core
constexpr std::array<const char*, kInstructionColumns> kInstructionFields{
    "agent", "lane",      "opcode",    "dst_space", "dst_index",     "src_space",        "src_index",
    "count", "recv_peer", "send_peer", "channel",   "operand_count", "dependency_count", "skew"};

using Words = nb::ndarray<nb::numpy, const std::int32_t>;

/// `columns` numbers of each row, starting at the given one, as an array that keeps `self` alive.
template <typename Row>
Words view(nb::handle self, const std::vector<Row>& rows, std::size_t columns) {
  static_assert(std::is_trivially_copyable_v<Row> && sizeof(Row) % sizeof(std::int32_t) == 0);
  return Words(rows.data(), {rows.size(), columns}, self, {sizeof(Row) / sizeof(std::int32_t), 1});
}

Words numbers(nb::handle self, std::span<const std::uint32_t> column) {
  return Words(column.data(), {column.size()}, self, {1});
}

/// A new array that owns its data.
nb::object array_of(std::vector<std::int32_t> column) {
  auto owned = std::make_unique<std::vector<std::int32_t>>(std::move(column));
  const std::int32_t* const data = owned->data();
  const std::size_t size = owned->size();
  const nb::capsule owner(owned.release(),
                          [](void* memory) noexcept { delete static_cast<std::vector<std::int32_t>*>(memory); });
  return Words(data, {size}, owner).cast();
}

/// Rows of a table from a list of rows or from an array of any integer type; throws ProgramError otherwise.
template <typename Row>
class Table {
 public:
  Table(std::string name, std::size_t columns, std::size_t least)
      : name_(std::move(name)), columns_(columns), least_(least) {}

  std::vector<Row> read(nb::handle values) {
    if (nb::isinstance<nb::list>(values)) {
      for (const nb::handle row : nb::cast<nb::list>(values)) read_list(row);
    } else {
      read_array(nb::module_::import_("numpy").attr("asarray")(values));
    }
    return std::move(rows_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw ProgramError("table '" + name_ + "' " + what); }

  void check_width(std::size_t columns) const {
    if (columns >= least_ && columns <= columns_) return;
    refuse("has rows of " + std::to_string(columns) + " numbers; they must have " + std::to_string(columns_));
  }

  void read_list(nb::handle values) {
    std::array<std::int32_t, sizeof(Row) / sizeof(std::int32_t)> numbers{};
    std::size_t columns = 0;
    for (const nb::handle value : values) {
      std::int32_t number = 0;
      if (!nb::try_cast(value, number)) refuse("must hold 32-bit integers");
      if (columns < columns_) numbers[columns] = number;
      ++columns;
    }
    check_width(columns);
    rows_.push_back(std::bit_cast<Row>(numbers));
  }

  void read_array(const nb::object& array) {
    if (nb::cast<std::size_t>(array.attr("size")) == 0) return;
    if (nb::cast<std::size_t>(array.attr("ndim")) != 2) refuse("must have rows and columns");
    const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
    const nb::object most = nb::int_(std::numeric_limits<std::int32_t>::max());
    const nb::object least = nb::int_(std::numeric_limits<std::int32_t>::min());
    if ((kind != "i" && kind != "u") || array.attr("max")() > most || array.attr("min")() < least) {
      refuse("must hold 32-bit integers");
    }
    const auto found = nb::cast<nb::ndarray<const std::int32_t, nb::ndim<2>, nb::device::cpu>>(
        array.attr("astype")("int32", "copy"_a = false));
    check_width(found.shape(1));
    rows_.resize(found.shape(0));
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      std::array<std::int32_t, sizeof(Row) / sizeof(std::int32_t)> numbers{};
      for (std::size_t column = 0; column < found.shape(1); ++column) numbers[column] = found(row, column);
      rows_[row] = std::bit_cast<Row>(numbers);
    }
  }

  std::string name_;
  std::size_t columns_, least_;
  std::vector<Row> rows_;
};

std::uint32_t number_of(std::int64_t value, const char* what) {
  if (value >= 0 && value <= std::numeric_limits<std::int32_t>::max()) return static_cast<std::uint32_t>(value);
  throw ProgramError(std::string(what) + " is " + std::to_string(value) + "; it must be 0..2147483647");
}

std::shared_ptr<Program> new_program(std::string name, std::string_view collective, std::int64_t root,
                                     std::int64_t ranks, nb::handle chunks, nb::handle slots, nb::handle instructions,
                                     nb::handle operands, nb::handle dependencies, std::int64_t fifo_depth,
                                     bool out_of_place, bool in_place, bool rounds_per_hop) {
  auto program = std::make_shared<Program>();
  program->name = std::move(name);
  try {
    program->collective = collective_named(collective);
  } catch (const std::invalid_argument& error) {
    throw ProgramError(error.what());
  }
  program->root = number_of(root, "root");
  program->ranks = number_of(ranks, "ranks");
  program->fifo_depth = number_of(fifo_depth, "fifo_depth");
  program->out_of_place = out_of_place;
  program->in_place = in_place;
  program->rounds_per_hop = rounds_per_hop;
  program->chunks = Table<Chunk>("chunks", 2, 2).read(chunks);
  program->slots = Table<SlotRow>("slots", 3, 3).read(slots);
  program->instructions =
      Table<Instruction>("instructions", kInstructionColumns, kInstructionColumns - 1).read(instructions);
  program->operands = Table<Slot>("operands", 2, 2).read(operands);
  program->dependencies = Table<Dependency>("dependencies", 2, 2).read(dependencies);
  program->validate();
  return program;
}

nb::dict columns(nb::handle self) {
  const auto& program = nb::cast<const Program&>(self);
  nb::dict all;
  all["name"] = program.name;
  all["collective"] = name_of(program.collective);
  all["root"] = program.root;
  all["ranks"] = program.ranks;
  for (const char* table : {"chunks", "slots", "instructions", "operands", "dependencies"}) {
    all[table] = self.attr(table);
  }
  all["fifo_depth"] = program.fifo_depth;
  all["out_of_place"] = program.out_of_place;
  all["in_place"] = program.in_place;
  all["rounds_per_hop"] = program.rounds_per_hop;
  return all;
}

nb::object replaced(nb::handle self, const nb::dict& changes) {
  nb::dict all = columns(self);
  all.update(changes);
  return nb::type<Program>()(**all);
}

Words field(nb::handle self, std::string_view name) {
  const auto& rows = nb::cast<const Program&>(self).instructions;
  const auto* const found = std::ranges::find(kInstructionFields, name);
  if (found == kInstructionFields.end()) throw nb::key_error(std::string(name).c_str());
  const auto* const words = reinterpret_cast<const std::int32_t*>(rows.data());
  return Words(rows.empty() ? nullptr : words + (found - kInstructionFields.begin()), {rows.size()}, self,
               {sizeof(Instruction) / sizeof(std::int32_t)});
}

/// ProgramError is the user's mistake: raises the exception type that the command line knows.
void translate_program_error(const std::exception_ptr& thrown, void* /*unused*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const ProgramError& error) {
    const nb::object type = nb::module_::import_("syntony.synth.model.instructions").attr("ProgramError");
    PyErr_SetString(type.ptr(), error.what());
  }
}

void bind_value(nb::module_& m) {
  nb::register_exception_translator(translate_program_error);
  m.attr("INSTRUCTION_FIELDS") = nb::tuple(nb::cast(kInstructionFields));
  nb::dict opcodes;
  for (const OpcodeFacts& facts : kOpcodes) {
    nb::dict entry;
    entry["reads"] = facts.reads;
    entry["writes"] = facts.writes;
    entry["receives"] = facts.receives;
    entry["sends"] = facts.sends;
    entry["one_sided"] = facts.one_sided;
    opcodes[nb::str(facts.name.data(), facts.name.size())] = entry;
  }
  m.attr("OPCODES") = opcodes;
  nb::class_<Program>(m, "Program",
                      "Who does what: one agent per rank, lanes of instructions over slots. Immutable and validated; "
                      "whether it is right is the checker's word.\n\n"
                      "The tables are read-only views of the core's memory; synth/model/program.py describes them.")
      .def(nb::new_(&new_program), nb::kw_only(), "name"_a, "collective"_a, "root"_a, "ranks"_a, "chunks"_a, "slots"_a,
           "instructions"_a, "operands"_a, "dependencies"_a, "fifo_depth"_a = 1, "out_of_place"_a = true,
           "in_place"_a = true, "rounds_per_hop"_a = false,
           "From tables, as lists of rows or arrays; rows of instructions may leave out the last field, `skew`, when "
           "it is 0. ProgramError names the first value that cannot be.")
      .def("columns", &columns, nb::sig("def columns(self) -> dict[str, typing.Any]"),
           "The keyword arguments of the constructor that give this Program again.")
      .def(
          "replace", [](nb::handle self, const nb::kwargs& changes) { return replaced(self, changes); }, "changes"_a,
          nb::sig("def replace(self, **changes: typing.Any) -> Program"),
          "The same Program with some of `columns()` changed.")
      .def_prop_ro("chunks", [](nb::handle self) { return view(self, nb::cast<const Program&>(self).chunks, 2); })
      .def_prop_ro("slots", [](nb::handle self) { return view(self, nb::cast<const Program&>(self).slots, 3); })
      .def_prop_ro(
          "instructions",
          [](nb::handle self) { return view(self, nb::cast<const Program&>(self).instructions, kInstructionColumns); })
      .def_prop_ro("operands", [](nb::handle self) { return view(self, nb::cast<const Program&>(self).operands, 2); })
      .def_prop_ro("dependencies",
                   [](nb::handle self) { return view(self, nb::cast<const Program&>(self).dependencies, 2); })
      .def("field", &field, "name"_a, "One column of the instructions, by its name in INSTRUCTION_FIELDS; shape (I,).")
      .def_prop_ro(
          "space_start",
          [](nb::handle self) {
            const auto& program = nb::cast<const Program&>(self);
            return Words(program.space_start.data(), {program.ranks, 3}, self, {3, 1});
          },
          "(ranks, 3): the row of `slots` where the agent's space begins; the row of a slot is start + index.")
      .def_prop_ro(
          "lane_start",
          [](nb::handle self) {
            const auto& program = nb::cast<const Program&>(self);
            const std::span starts = std::span(program.lane_start).first(program.lane_start.size() - 1);
            std::vector<std::int32_t> agents;
            agents.reserve(starts.size());
            for (const std::uint32_t row : starts) {
              agents.push_back(static_cast<std::int32_t>(program.instructions[row].agent));
            }
            return nb::make_tuple(numbers(self, starts), array_of(std::move(agents)));
          },
          nb::sig("def lane_start(self) -> tuple[NDArray[numpy.int32], NDArray[numpy.int32]]"),
          "Two columns over all lanes in order: the lane's first row of `instructions`, and its agent.")
      .def_prop_ro(
          "position",
          [](const Program& self) {
            std::vector<std::int32_t> positions;
            positions.reserve(self.instructions.size());
            for (std::size_t lane = 0; lane + 1 < self.lane_start.size(); ++lane) {
              const auto length = static_cast<std::int32_t>(self.lane_start[lane + 1] - self.lane_start[lane]);
              for (std::int32_t i = 0; i < length; ++i) positions.push_back(i);
            }
            return array_of(std::move(positions));
          },
          nb::sig("def position(self) -> NDArray[numpy.int32]"), "(I,) the position of each instruction in its lane.")
      .def(
          "space_size",
          [](const Program& self, std::uint32_t agent, std::uint32_t space) {
            if (agent >= self.ranks || space > 2) throw nb::index_error("no such agent or space");
            return self.agent(agent).slots(static_cast<Space>(space)).size();
          },
          "agent"_a, "space"_a, "How many slots the agent has in the space.")
      .def(
          "where",
          [](const Program& self, std::size_t row) {
            if (row >= self.instructions.size()) throw nb::index_error("no such instruction");
            return self.where(row);
          },
          "row"_a,
          "How people are told about a row of `instructions`: \"rank 2, lane 0, instruction 5 (recv_reduce)\".")
      .def(
          "without_skew",
          [](nb::handle self) {
            nb::object rows = self.attr("instructions").attr("copy")();
            rows[nb::make_tuple(nb::ellipsis(), -1)] = 0;
            nb::dict changes;
            changes["instructions"] = rows;
            return replaced(self, changes);
          },
          nb::sig("def without_skew(self) -> Program"),
          "The same Program, slice after slice: as right as this one, and with many slices mostly slower.")
      .def_prop_ro("name", [](const Program& self) { return self.name; })
      .def_prop_ro("collective", [](const Program& self) { return name_of(self.collective); })
      .def_ro("ranks", &Program::ranks)
      .def_ro("root", &Program::root)
      .def_ro("fifo_depth", &Program::fifo_depth, "Messages that one connection must be able to hold.")
      .def_ro("out_of_place", &Program::out_of_place, "Right when input and output are disjoint memory.")
      .def_ro("in_place", &Program::in_place,
              "Right when input and output slots of the same chunk are the same memory.")
      .def_ro("rounds_per_hop", &Program::rounds_per_hop,
              "16- and 8-bit floats are rounded at every reduction, not once.")
      .def_prop_ro("channels", &Program::channels, "1 + the highest channel in use.")
      .def_prop_ro("message_slots", &Program::message_slots, "The most slots of a message.")
      .def_prop_ro("one_sided", &Program::one_sided, "Whether it uses peer_read or peer_write.")
      .def_prop_ro("skewed", &Program::skewed,
                   "Whether some instruction works on earlier slices than its lane's iteration.")
      .def_prop_ro("needs_size_matrix", &Program::needs_size_matrix)
      .def_prop_ro("hash", &Program::hash, "64-bit FNV-1a over every field: what ranks agree on. No proof rests on it.")
      .def(
          "__eq__",
          [](const Program& self, nb::handle other) {
            return nb::isinstance<Program>(other) && self == nb::cast<const Program&>(other);
          },
          "other"_a, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const Program& self) { return static_cast<std::int64_t>(self.hash() >> 1U); })
      .def("__str__",
           [](nb::handle self) {
             return nb::cast<std::string>(nb::module_::import_("syntony.synth.model.listing").attr("listing")(self));
           })
      .def("__repr__", [](const Program& self) {
        return "Program('" + self.name + "', " + std::string(name_of(self.collective)) +
               ", ranks=" + std::to_string(self.ranks) + ")";
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
  if (opcode >= kOpcodes.size()) throw std::invalid_argument("there is no opcode " + std::to_string(opcode));
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
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
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
      .def(
          "finish", [](const ProgramBuilder& self) { return std::make_shared<Program>(self.finish()); },
          "The Program so far, validated.");
}

void bind_algorithms(nb::module_& m) {
  nb::class_<Algorithm>(m, "Algorithm", "A builder of Programs: an entry of the table `algorithms()`.")
      .def_ro("name", &Algorithm::name)
      .def_ro("description", &Algorithm::description)
      .def_prop_ro(
          "collectives",
          [](const Algorithm& self) {
            nb::list names;
            for (const Collective collective : self.collectives) names.append(name_of(collective));
            return nb::tuple(names);
          },
          nb::sig("def collectives(self) -> tuple[str, ...]"))
      .def("__repr__", [](const Algorithm& self) { return "Algorithm('" + std::string(self.name) + "')"; });
  m.def(
      "algorithms", [] { return std::vector<Algorithm>(algorithms().begin(), algorithms().end()); },
      "The table of C++ builders.");
  m.def(
      "algorithm_names", [](std::string_view collective) { return Selector::names(collective_named(collective)); },
      "collective"_a, "Whom one may ask for by name in this collective, beside `auto` and what is loaded.");
  m.def(
      "automatic_choice",
      [](std::string_view collective, std::size_t bytes, const Boxes& boxes, bool crowded) {
        std::uint32_t ranks = 0;
        for (const auto& box : boxes) ranks += static_cast<std::uint32_t>(box.size());
        return Selector(ranks, boxes, crowded).choice(collective_named(collective), 0, bytes, "auto");
      },
      "collective"_a, "bytes"_a, "boxes"_a, "crowded"_a = false,
      "The algorithm that `auto` means among the ranks of these hosts where no table says otherwise, and why. "
      "`crowded`: ranks share processors.");
  m.def(
      "build",
      [](std::string_view name, std::string_view collective, std::uint32_t ranks, std::uint32_t root,
         const std::optional<Boxes>& boxes, const std::optional<Shares>& shares) {
        const nb::gil_scoped_release unlocked;
        return std::make_shared<Program>(
            build(name, collective_named(collective), ranks, root, boxes.value_or(Boxes{}), shares.value_or(Shares{})));
      },
      "name"_a, "collective"_a, "ranks"_a, "root"_a = 0, "boxes"_a = nb::none(), "shares"_a = nb::none(),
      "The Program of a named algorithm; `boxes` (ranks of each box) shapes `hierarchical`, `shares` (by rank) "
      "`two_shot`.");
  m.def(
      "shares_for", [](const std::vector<double>& rates) { return shares_for(rates); }, "rates"_a,
      "How much of an all_reduce by `two_shot` each rank should sum, for what it can send and receive per second.");
}

}  // namespace
}  // namespace syntony

void bind_program(nb::module_& m) {
  syntony::bind_value(m);
  syntony::bind_builder(m);
  syntony::bind_algorithms(m);
}
