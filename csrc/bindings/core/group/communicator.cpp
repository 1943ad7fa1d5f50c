// The Communicator for Python. Buffers are passed as addresses; the Python layer (collectives/verbs.py) knows what
// arrays are.
#include "core/group/communicator.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/core/group/even_call.hpp"
#include "bindings/core/group/process.hpp"
#include "bindings/core/group/python_communicator.hpp"
#include "bindings/core/group/tuner.hpp"
#include "core/call.hpp"
#include "core/program/prepared_program.hpp"
#include "core/recorder/recorder_dump.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

DType dtype_named(std::string_view name) {
  const auto at = std::ranges::find(kDTypes, name, &DTypeTraits::name);
  if (at == kDTypes.end()) throw std::invalid_argument("unknown dtype '" + std::string(name) + "'");
  return static_cast<DType>(at - kDTypes.begin());
}

ReduceOp op_named(std::string_view name) {
  const auto at = std::ranges::find(kReduceOps, name);
  if (at == kReduceOps.end()) throw std::invalid_argument("unknown op '" + std::string(name) + "'");
  return static_cast<ReduceOp>(at - kReduceOps.begin());
}

std::optional<Priority> priority_named(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  const auto at = std::ranges::find(kPriorityNames, *name);
  if (at == kPriorityNames.end()) {
    throw std::invalid_argument("unknown priority '" + *name + "': possible are low, normal, high");
  }
  return static_cast<Priority>(at - kPriorityNames.begin());
}

using Address =
    std::tuple<std::uintptr_t, std::uintptr_t, std::size_t>;  // of a Block: input, output (0: none), elements

std::vector<Block> blocks_at(const std::vector<Address>& addresses) {
  std::vector<Block> blocks;
  blocks.reserve(addresses.size());
  for (const auto& [input, output, elements] : addresses) {
    blocks.push_back({.input = reinterpret_cast<const std::byte*>(input),
                      .output = reinterpret_cast<std::byte*>(output),
                      .elements = elements});
  }
  return blocks;
}

using Counts = std::vector<std::size_t>;  // elements per part

/// blocks_of(), for arrays given by address, 0 if this rank has none.
std::vector<Address> blocks_of_arrays(const PythonCommunicator& self, std::string_view name, std::uint32_t root,
                                      std::uintptr_t input, const Counts& inputs, std::uintptr_t output,
                                      const Counts& outputs, std::size_t element_bytes, bool even) {
  const Collective collective = collective_named(name);
  const Communicator& group = self.group();
  const CollectiveFacts& facts = facts_of(collective);
  const std::size_t given = facts.by_destination ? group.size() : 1, taken = facts.by_source ? group.size() : 1;
  if (inputs.size() != given || outputs.size() != taken) {
    throw std::invalid_argument(std::string(name) + " of " + std::to_string(group.size()) + " ranks has " +
                                std::to_string(given) + " parts of input and " + std::to_string(taken) +
                                " of output, not " + std::to_string(inputs.size()) + " and " +
                                std::to_string(outputs.size()));
  }
  std::vector<Address> addresses;
  for (const Block& block :
       blocks_of(collective, {group.rank(), group.size(), root},
                 consecutive(reinterpret_cast<const std::byte*>(input), inputs, element_bytes),
                 consecutive(reinterpret_cast<std::byte*>(output), outputs, element_bytes), even ? inputs[0] : 0)) {
    addresses.emplace_back(reinterpret_cast<std::uintptr_t>(block.input),
                           reinterpret_cast<std::uintptr_t>(block.output), block.elements);
  }
  return addresses;
}

void bind_group(nb::module_& m) {
  using Self = PythonCommunicator;
  nb::class_<Self>(m, "Communicator", "One rank's end of a group. Buffers are addresses.")
      .def(nb::init<const PythonProcess&, const nb::object&, double, std::string, std::vector<std::uint32_t>,
                    const nb::object&>(),
           "process"_a, "bootstrap"_a, "timeout"_a, "name"_a, "job_ranks"_a = std::vector<std::uint32_t>(),
           "tuner"_a = nb::none(), "`tuner` is kept for ever, as groups may outlive the interpreter.")
      .def_static(
          "of_capsule",
          [](const PythonProcess& process, const nb::capsule& group) {
            return new Self(process.value,
                            *static_cast<std::shared_ptr<Communicator>*>(group.data(kCommunicatorCapsule)));
          },
          "process"_a, "capsule"_a, nb::sig("def of_capsule(process: Process, capsule: object) -> Communicator"),
          "The group of a torch backend (syntony._torch).")
      .def("capsule", &Self::capsule, nb::sig("def capsule(self) -> object"), "For syntony._torch.")
      .def(
          "split",
          [](const Self& self, std::optional<std::uint64_t> color, std::int64_t key, double timeout, std::string name) {
            return self.made([&](Communicator& group) {
              return group.split(color, key, {.timeout = from_seconds(timeout), .name = std::move(name)});
            });
          },
          "color"_a.none(), "key"_a, "timeout"_a, "name"_a, nb::rv_policy::take_ownership,
          "A group of those with the same color, or None without one. Collective; timeout 0: the group's.")
      .def(
          "shrink",
          [](const Self& self, const std::vector<std::uint32_t>& excluded, double timeout, std::string name) {
            return self.made([&](Communicator& group) {
              return group.shrink(excluded, {.timeout = from_seconds(timeout), .name = std::move(name)});
            });
          },
          "excluded"_a, "timeout"_a, "name"_a, nb::rv_policy::take_ownership,
          "A group of those that live and are not excluded. Collective over them; this group is shut down.")
      .def_prop_ro(
          "members", [](const Self& self) { return self.group().members(); },
          "By rank: its rank in the group that this one was made out of.")
      .def_prop_ro("rank", [](const Self& self) { return self.group().rank(); })
      .def_prop_ro("size", [](const Self& self) { return self.group().size(); })
      .def_prop_ro(
          "boxes", [](const Self& self) { return self.group().boxes(); }, "The ranks of each host.")
      .def_prop_ro(
          "crowded", [](const Self& self) { return self.group().crowded(); },
          "True if some ranks share processors: they are more than the CPUs that they may use.")
      .def_prop_ro("sequence", [](const Self& self) { return self.group().sequence(); })
      .def(
          "record",
          [](const Self& self) {
            const std::string pickle = pickle_of({self.group().recorder()});
            return nb::bytes(pickle.data(), pickle.size());
          },
          "A dump (recorder_dump.hpp) of this group alone.")
      .def(
          "counters", [](const Self& self) { return counters_text({self.group().recorder()}); },
          "The counters of this group as Prometheus text.")
      .def("blocks_of", &blocks_of_arrays, "collective"_a, "root"_a, "input"_a, "inputs"_a, "output"_a, "outputs"_a,
           "element_bytes"_a, "even"_a,
           "The blocks (input address, output address, elements) of a collective at this rank, of arrays that begin at "
           "`input` and `output` (0: none here) and consist of parts of so many elements.")
      .def(
          "run",
          [](const Self& self, std::string_view collective, std::string_view dtype, std::string_view op,
             std::uint32_t root, const std::vector<Address>& blocks, std::string algorithm,
             const std::optional<std::string>& priority, std::size_t partition, double timeout, bool async,
             bool average, double factor, bool even, nb::object keep_alive) {
            Call call{.collective = collective_named(collective),
                      .dtype = dtype_named(dtype),
                      .op = op_named(op),
                      .root = root,
                      .blocks = blocks_at(blocks),
                      .even = even,
                      .scaling = {.average = average, .factor = factor},
                      .options = self.options(std::move(algorithm), timeout, async, std::move(keep_alive))};
            call.options.priority = priority_named(priority);
            call.options.partition = partition;
            return self.started([&](Communicator& group) { return group.run(std::move(call)); });
          },
          nb::kw_only(), "collective"_a, "dtype"_a, "op"_a = "sum", "root"_a = 0, "blocks"_a, "algorithm"_a = "auto",
          "priority"_a = nb::none(), "partition"_a = 0, "timeout"_a = 0.0, "async_op"_a = false, "average"_a = false,
          "factor"_a = 1.0, "even"_a = true, "keep_alive"_a = nb::none(),
          "Starts a collective over blocks (input address, output address, elements).")
      .def("run_even", &run_even, nb::arg().none(), nb::arg().none(), nb::arg().none(), nb::arg(), nb::arg(),
           nb::sig("def run_even(self, collective: str, input: object, output: object, op: str, "
                   "options: collections.abc.Mapping[str, object], /) -> bool"),
           "The call that is made nearly always, with arrays in even parts; waits for it. False, and nothing done, for "
           "any other call.")
      .def(
          "all_reduce_together",
          [](const Self& self, std::string_view dtype, std::string_view op, const std::vector<Address>& buffers,
             std::string algorithm, const std::optional<std::string>& priority, double timeout, bool async,
             bool average, nb::object keep_alive) {
            Call call{.dtype = dtype_named(dtype),
                      .op = op_named(op),
                      .blocks = blocks_at(buffers),
                      .scaling = {.average = average},
                      .options = self.options(std::move(algorithm), timeout, async, std::move(keep_alive))};
            call.options.priority = priority_named(priority);
            return self.started([&](Communicator& group) { return group.all_reduce_together(std::move(call)); });
          },
          nb::kw_only(), "dtype"_a, "op"_a = "sum", "buffers"_a, "algorithm"_a = "auto", "priority"_a = nb::none(),
          "timeout"_a = 0.0, "async_op"_a = false, "average"_a = false, "keep_alive"_a = nb::none(),
          "One all_reduce over buffers (input address, output address, elements), packed and unpacked.")
      .def(
          "barrier",
          [](const Self& self, const std::optional<std::string>& priority, double timeout, bool async) {
            CallOptions options = self.options("auto", timeout, async, nb::none());
            options.priority = priority_named(priority);
            return self.started([&](Communicator& group) { return group.barrier(options); });
          },
          "priority"_a = nb::none(), "timeout"_a = 0.0, "async_op"_a = false)
      .def(
          "send",
          [](const Self& self, std::uintptr_t address, std::size_t bytes, std::uint32_t destination, std::uint64_t tag,
             double timeout, bool async, nb::object keep_alive) {
            const CallOptions options = self.options("auto", timeout, async, std::move(keep_alive));
            return self.started([&](Communicator& group) {
              return group.send(reinterpret_cast<const std::byte*>(address), bytes, destination, tag, options);
            });
          },
          "address"_a, "bytes"_a, "destination"_a, "tag"_a = 0, "timeout"_a = 0.0, "async_op"_a = false,
          "keep_alive"_a = nb::none())
      .def(
          "receive",
          [](const Self& self, std::uintptr_t address, std::size_t bytes, int source, std::uint64_t tag, double timeout,
             bool async, nb::object keep_alive) {
            const CallOptions options = self.options("auto", timeout, async, std::move(keep_alive));
            return self.started([&](Communicator& group) {
              return group.receive(reinterpret_cast<std::byte*>(address), bytes, source, tag, options);
            });
          },
          "address"_a, "bytes"_a, "source"_a, "tag"_a = 0, "timeout"_a = 0.0, "async_op"_a = false,
          "keep_alive"_a = nb::none(), "`source` -1 receives from any rank.")
      .def(
          "add_program",
          [](const Self& self, const std::string& name, std::shared_ptr<Program> program) {
            self.group().add_program(name, std::move(program));
          },
          "name"_a, "program"_a, "Makes a Program available as an algorithm. The caller has had it proven.")
      .def(
          "set_size_ranges",
          [](const Self& self, const std::string& name, std::string_view collective,
             const std::vector<SizeRangeTuple>& ranges) {
            self.group().set_size_ranges(name, collective_named(collective), size_ranges_of(ranges));
          },
          "name"_a, "collective"_a, "ranges"_a,
          "Makes `name` an algorithm that depends on the size. `ranges` has (last size in bytes, algorithm, reason) in "
          "ascending order; the last algorithm also serves larger sizes. Every rank must pass the same.")
      .def(
          "set_levels",
          [](const Self& self, std::vector<std::vector<std::uint32_t>> levels) {
            self.group().set_levels(std::move(levels));
          },
          "levels"_a,
          "Which ranks are near each other, for `hierarchical`: each rank once. Every rank must pass the same.")
      .def(
          "set_shares",
          [](const Self& self, std::vector<std::uint32_t> shares) { self.group().set_shares(std::move(shares)); },
          "shares"_a, "How much of an all_reduce by `two_shot` each rank sums, by rank. Every rank must pass the same.")
      .def(
          "choice",
          [](const Self& self, std::string_view collective, std::uint32_t root, std::size_t bytes,
             const std::string& algorithm) {
            return self.group().choice(collective_named(collective), root, bytes, algorithm);
          },
          "collective"_a, "root"_a = 0, "bytes"_a = 0, "algorithm"_a = "auto",
          "The algorithm that a call would run, and why.")
      .def_prop_ro(
          "notes", [](const Self& self) { return self.group().metadata(); },
          "What the ranks' tuners told each other when the group was made, by rank.")
      .def(
          "program_hash",
          [](const Self& self, std::string_view collective, std::uint32_t root, std::size_t bytes,
             const std::string& algorithm) {
            return self.group().program_for(collective_named(collective), root, bytes, algorithm)->hash();
          },
          "collective"_a, "root"_a = 0, "bytes"_a = 0, "algorithm"_a = "auto", "Of program_for's, at once.")
      .def(
          "program_for",
          [](const Self& self, std::string_view collective, std::uint32_t root, std::size_t bytes,
             const std::string& algorithm) {
            return self.group().program_for(collective_named(collective), root, bytes, algorithm)->shared();
          },
          "collective"_a, "root"_a = 0, "bytes"_a = 0, "algorithm"_a = "auto", "The Program that a call would run.")
      .def(
          "abort", [](const Self& self, const std::string& why) { self.group().abort(why); }, "why"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def(
          "shutdown", [](const Self& self) { self.group().shutdown(); }, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "set_priority",
          [](const Self& self, const std::optional<std::string>& name) {
            self.group().set_priority(priority_named(name));
          },
          "priority"_a)
      .def(
          "set_canonical", [](const Self& self, bool canonical) { self.group().set_canonical(canonical); },
          "canonical"_a)
      .def(
          "set_timeout", [](const Self& self, double timeout) { self.group().set_timeout(from_seconds(timeout)); },
          "timeout"_a)
      .def_prop_ro("timeout",
                   [](const Self& self) { return std::chrono::duration<double>(self.group().timeout()).count(); });
}

}  // namespace
}  // namespace syntony

void bind_communicator(nb::module_& m) { syntony::bind_group(m); }
