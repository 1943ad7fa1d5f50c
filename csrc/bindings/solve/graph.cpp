// Graph algorithms for Python: arcs as NumPy columns in (tails, heads, and a number each), results as arrays out.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/columns.hpp"
#include "solve/graph/max_flow.hpp"
#include "solve/graph/shortest_paths.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

void bind_flow_network(nb::module_& m) {
  using Amount = FlowNetwork::Amount;
  nb::class_<FlowNetwork>(m, "FlowNetwork",
                          "A directed multigraph with int64 capacities and a flow in it that further calls continue.")
      .def(
          "__init__",
          [](FlowNetwork* self, std::uint32_t nodes, const Column<std::int32_t>& tails,
             const Column<std::int32_t>& heads, const Column<Amount>& capacities) {
            new (self) FlowNetwork(nodes, span_of(tails), span_of(heads), span_of(capacities));
          },
          "nodes"_a, "tails"_a, "heads"_a, "capacities"_a)
      .def_prop_ro("nodes", &FlowNetwork::nodes)
      .def_prop_ro("arcs", &FlowNetwork::arcs)
      .def(
          "augment",
          [](FlowNetwork& self, Node source, Node sink, std::optional<Amount> limit) {
            const nb::gil_scoped_release unlocked;
            return self.augment(source, sink, limit.value_or(FlowNetwork::kUnlimited));
          },
          "source"_a, "sink"_a, "limit"_a = nb::none(),
          "Sends as much more as fits from source to sink (at most `limit`); returns how much that was.")
      .def("set_capacity", &FlowNetwork::set_capacity, "arc"_a, "capacity"_a,
           "A new capacity for one arc; the flow stays and must fit.")
      .def("flow", &FlowNetwork::flow, "arc"_a, "What flows through the arc.")
      .def("reset", &FlowNetwork::reset, "The flow back to zero.")
      .def(
          "flows", [](const FlowNetwork& self) { return array_of(self.flows()); }, "What flows through each arc.")
      .def(
          "reachable_from", [](const FlowNetwork& self, Node source) { return array_of(self.reachable_from(source)); },
          "source"_a,
          "Which nodes can still be sent to: after a maximum flow the smallest source side of a minimum cut.")
      .def(
          "reaching", [](const FlowNetwork& self, Node sink) { return array_of(self.reaching(sink)); }, "sink"_a,
          "Which nodes can still send to the sink: after a maximum flow the smallest sink side of a minimum cut.");
}

void bind_shortest_paths(nb::module_& m) {
  nb::class_<ShortestPaths>(m, "ShortestPaths", "A directed graph with lengths that answers how far its nodes are.")
      .def(
          "__init__",
          [](ShortestPaths* self, std::uint32_t nodes, const Column<std::int32_t>& tails,
             const Column<std::int32_t>& heads, const Column<double>& lengths) {
            new (self) ShortestPaths(nodes, span_of(tails), span_of(heads), span_of(lengths));
          },
          "nodes"_a, "tails"_a, "heads"_a, "lengths"_a)
      .def(
          "distances",
          [](ShortestPaths& self, Node source) {
            const auto found = self.from(source);
            return array_of(std::vector<double>(found.begin(), found.end()));
          },
          "source"_a, "Per node the length of a shortest path from `source`; infinite where there is none.");
}

}  // namespace
}  // namespace syntony

void bind_graph(nb::module_& m) {
  syntony::bind_flow_network(m);
  syntony::bind_shortest_paths(m);
}
