// Fractional tree packing for Python: a network as NumPy columns in, trees and their weights out.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "bindings/columns.hpp"
#include "solve/trees/fractional_packing.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_packing(nb::module_& m) {
  using syntony::Column;
  using syntony::FractionalPacking;
  using syntony::span_of;
  nb::class_<FractionalPacking>(m, "FractionalPacking",
                                "Spanning trees of any weights by multiplicative weights; see "
                                "csrc/solve/trees/fractional_packing.hpp.")
      .def(
          "__init__",
          [](FractionalPacking* self, std::uint32_t nodes, const Column<std::int32_t>& tails,
             const Column<std::int32_t>& heads, const Column<double>& capacities, const Column<double>& owed) {
            new (self) FractionalPacking({nodes, span_of(tails), span_of(heads), span_of(capacities), span_of(owed)});
          },
          "nodes"_a, "tails"_a, "heads"_a, "capacities"_a, "owed"_a)
      .def("run", &FractionalPacking::run, nb::call_guard<nb::gil_scoped_release>(), "phases"_a, "seconds"_a,
           "most_trees"_a,
           "Runs so many phases more, or until the seconds are over or so many trees are known; whether all were run.")
      .def(
          "cheapest",
          [](FractionalPacking& self, const Column<double>& lengths) { return self.cheapest(span_of(lengths)); },
          "lengths"_a, "What the shortest trees of all roots cost under these lengths, each times what its root owes.")
      .def("forest", &FractionalPacking::forest, "All trees found, each once.")
      .def_prop_ro(
          "weights", [](const FractionalPacking& self) { return syntony::array_of(self.weights()); },
          nb::rv_policy::move)
      .def_prop_ro(
          "lengths", [](const FractionalPacking& self) { return syntony::array_of(self.lengths()); },
          nb::rv_policy::move);
}
