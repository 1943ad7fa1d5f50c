// Local searches for Python: trees repaired after a loss, paths that share links, trees that negotiate for them.
#include <nanobind/nanobind.h>

#include <cstdint>

#include "bindings/columns.hpp"
#include "solve/graph/balanced_paths.hpp"
#include "solve/trees/negotiated.hpp"
#include "solve/trees/regraft.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_mending(nb::module_& m) {
  using syntony::BalancedPaths, syntony::Column, syntony::span_of;
  const auto column = [](auto member) {
    return [member](const BalancedPaths& paths) { return syntony::array_of(paths.*member); };
  };
  nb::class_<BalancedPaths>(m, "BalancedPaths", "Paths as columns; see csrc/solve/graph/balanced_paths.hpp.")
      .def_prop_ro("demand", column(&BalancedPaths::demand), nb::rv_policy::move)
      .def_prop_ro("offset", column(&BalancedPaths::offset), nb::rv_policy::move)
      .def_prop_ro("link", column(&BalancedPaths::link), nb::rv_policy::move)
      .def_prop_ro("prices", column(&BalancedPaths::prices), nb::rv_policy::move)
      .def_ro("time", &BalancedPaths::time)
      .def_ro("proven", &BalancedPaths::proven);
  m.def(
      "balanced_paths",
      [](std::uint32_t nodes, const Column<std::int32_t>& tails, const Column<std::int32_t>& heads,
         const Column<double>& capacities, const Column<std::int32_t>& source, const Column<std::int32_t>& target,
         const Column<std::int64_t>& weight, const Column<std::int32_t>& hop_demand,
         const Column<std::int32_t>& hop_step, const Column<std::int64_t>& hop_offset,
         const Column<std::int32_t>& hop_link, double time, double tolerance, double seconds, std::uint32_t rounds) {
        const nb::gil_scoped_release unlocked;
        return syntony::balanced_paths({nodes, span_of(tails), span_of(heads), span_of(capacities), span_of(source),
                                        span_of(target), span_of(weight), span_of(hop_demand), span_of(hop_step),
                                        span_of(hop_offset), span_of(hop_link), time, tolerance, seconds, rounds});
      },
      "nodes"_a, "tails"_a, "heads"_a, "capacities"_a, "source"_a, "target"_a, "weight"_a, "hop_demand"_a, "hop_step"_a,
      "hop_offset"_a, "hop_link"_a, "time"_a, "tolerance"_a, "seconds"_a, "rounds"_a = syntony::PathRequest{}.rounds,
      "One path per demand, balanced over the links by exponential prices; only those that changed are returned. "
      "ValueError where no path leads.");
  using syntony::NegotiatedTrees;
  nb::class_<NegotiatedTrees>(m, "NegotiatedTrees", "Hops of trees; see csrc/solve/trees/negotiated.hpp.")
      .def_prop_ro(
          "hop", [](const NegotiatedTrees& trees) { return syntony::array_of(trees.hop); }, nb::rv_policy::move)
      .def_ro("busy", &NegotiatedTrees::busy)
      .def_ro("depth", &NegotiatedTrees::depth);
  m.def(
      "negotiated_trees",
      [](std::uint32_t receivers, const Column<std::int32_t>& src, const Column<std::int32_t>& dst,
         const Column<double>& delay, const Column<std::int64_t>& offset, const Column<std::int32_t>& link,
         const Column<double>& seconds, const Column<std::int64_t>& root, const Column<double>& weight,
         const Column<std::uint8_t>& backwards, double time, double patience, std::uint32_t rounds) {
        const nb::gil_scoped_release unlocked;
        return syntony::negotiated_trees({receivers, span_of(src), span_of(dst), span_of(delay), span_of(offset),
                                          span_of(link), span_of(seconds), span_of(root), span_of(weight),
                                          span_of(backwards), time, patience, rounds});
      },
      "receivers"_a, "src"_a, "dst"_a, "delay"_a, "offset"_a, "link"_a, "seconds"_a, "root"_a, "weight"_a,
      "backwards"_a, "time"_a, "patience"_a, "rounds"_a,
      "Spanning trees that share links so that none is busy for longer than `time`, nearly, and are shallow. "
      "ValueError where a receiver cannot be reached.");
  m.def(
      "regraft",
      [](std::uint32_t nodes, std::uint32_t receivers, const Column<std::int32_t>& tails,
         const Column<std::int32_t>& heads, const Column<std::int64_t>& room, const Column<std::int64_t>& most,
         const Column<std::int64_t>& root, const Column<std::int64_t>& weight, const Column<std::uint8_t>& backwards,
         const Column<std::int64_t>& tail, const Column<std::int64_t>& head, const Column<std::int64_t>& route_offset,
         const Column<std::int64_t>& route_link, std::uint32_t rounds) {
        const nb::gil_scoped_release unlocked;
        return syntony::regraft({nodes, receivers, span_of(tails), span_of(heads), span_of(room), span_of(most),
                                 span_of(root), span_of(weight), span_of(backwards), span_of(tail), span_of(head),
                                 span_of(route_offset), span_of(route_link), rounds});
      },
      "nodes"_a, "receivers"_a, "tails"_a, "heads"_a, "room"_a, "most"_a, "root"_a, "weight"_a, "backwards"_a, "tail"_a,
      "head"_a, "route_offset"_a, "route_link"_a, "rounds"_a,
      "Trees mended after links were lost (-1 in route_link) or became too slow for what they carry, as a Forest; "
      "grown, where they come without edges. Those that go backwards walk against the links. "
      "ValueError where a receiver cannot be reached.");
}
