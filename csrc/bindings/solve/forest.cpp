// Tree packing for Python: a network as NumPy columns in, trees as columns out.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "bindings/columns.hpp"
#include "solve/trees/forest.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_forest(nb::module_& m) {
  using syntony::Forest;
  const auto column = [](auto member) {
    return [member](const Forest& forest) { return syntony::array_of(forest.*member); };
  };
  nb::class_<Forest>(m, "Forest", "Trees as columns; see csrc/solve/trees/forest.hpp.")
      .def_prop_ro("root", column(&Forest::root), nb::rv_policy::move)
      .def_prop_ro("multiplicity", column(&Forest::multiplicity), nb::rv_policy::move)
      .def_prop_ro("offset", column(&Forest::offset), nb::rv_policy::move)
      .def_prop_ro("tail", column(&Forest::tail), nb::rv_policy::move)
      .def_prop_ro("head", column(&Forest::head), nb::rv_policy::move)
      .def_prop_ro("route", column(&Forest::route), nb::rv_policy::move)
      .def_prop_ro("route_offset", column(&Forest::route_offset), nb::rv_policy::move)
      .def_prop_ro("route_link", column(&Forest::route_link), nb::rv_policy::move);
  m.def(
      "edge_depths",
      [](std::size_t edges, const syntony::Column<std::int64_t>& tails, const syntony::Column<std::int64_t>& heads) {
        return syntony::array_of(syntony::edge_depths(edges, syntony::span_of(tails), syntony::span_of(heads)));
      },
      "edges"_a, "tails"_a, "heads"_a, "How far from its root each edge of trees of `edges` edges each begins.");
  m.def(
      "pack_forest",
      [](std::uint32_t nodes, const syntony::Column<std::int32_t>& tails, const syntony::Column<std::int32_t>& heads,
         const syntony::Column<std::int64_t>& capacities, const syntony::Column<std::int64_t>& trees) {
        using syntony::span_of;
        const nb::gil_scoped_release unlocked;
        return syntony::pack_forest({nodes, span_of(tails), span_of(heads), span_of(capacities), span_of(trees)});
      },
      "nodes"_a, "tails"_a, "heads"_a, "capacities"_a, "trees"_a,
      "Spanning trees over receivers 0..len(trees)-1 of a network whose other nodes relay, trees[r] of them from r. "
      "ValueError where they do not fit, or a relay takes in more or less than it sends out.");
}
