// Python's view of the simulator: columns in, columns out.
#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "columns.hpp"
#include "core/simulator/flows.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

template <class Member>
auto column_of(const std::vector<LinkRate>& timeline, Member member) {
  std::vector<std::remove_cvref_t<std::invoke_result_t<Member, const LinkRate&>>> column;
  column.reserve(timeline.size());
  for (const LinkRate& entry : timeline) column.push_back(std::invoke(member, entry));
  return array_of(std::move(column));
}

nb::dict simulate_flows(const Column<double>& bytes, const Column<double>& latency, const Column<double>& release,
                        const Column<std::int64_t>& after_offset, const Column<std::int32_t>& after,
                        const Column<std::int64_t>& after_left_offset, const Column<std::int32_t>& after_left,
                        const Column<std::int32_t>& set, const Column<std::uint8_t>& policy,
                        const Column<std::int64_t>& set_offset, const Column<std::int64_t>& path_offset,
                        const Column<std::int32_t>& link, const Column<double>& weight, const Column<double>& capacity,
                        bool timeline) {
  const Flows flows{.bytes = span_of(bytes),
                    .latency = span_of(latency),
                    .release = span_of(release),
                    .after_offset = span_of(after_offset),
                    .after_left_offset = span_of(after_left_offset),
                    .after = span_of(after),
                    .after_left = span_of(after_left),
                    .set = span_of(set),
                    .policy = span_of(policy),
                    .set_offset = span_of(set_offset),
                    .path_offset = span_of(path_offset),
                    .link = span_of(link),
                    .weight = span_of(weight),
                    .capacity = span_of(capacity)};
  FlowTimes found;
  {
    const nb::gil_scoped_release unlocked;
    found = simulate(flows, timeline);
  }
  nb::dict result;
  result["start"] = array_of(std::move(found.start));
  result["left"] = array_of(std::move(found.left));
  result["arrival"] = array_of(std::move(found.arrival));
  result["path"] = array_of(std::move(found.path));
  result["times"] = column_of(found.timeline, &LinkRate::time);
  result["link"] =
      column_of(found.timeline, [](const LinkRate& entry) { return static_cast<std::int32_t>(entry.link); });
  result["rate"] = column_of(found.timeline, &LinkRate::rate);
  return result;
}

}  // namespace
}  // namespace syntony

void bind_simulator(nb::module_& m) {
  m.def("simulate_flows", &syntony::simulate_flows, nb::kw_only(), "bytes"_a, "latency"_a, "release"_a,
        "after_offset"_a, "after"_a, "after_left_offset"_a, "after_left"_a, "set"_a, "policy"_a, "set_offset"_a,
        "path_offset"_a, "link"_a, "weight"_a, "capacity"_a, "timeline"_a,
        "Simulates flows on fairly shared links: the columns of synth.flows.Flows in, those of FlowTimes out.");
}
