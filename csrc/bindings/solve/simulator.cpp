// Python's view of the simulator: columns in, columns out.
#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "bindings/columns.hpp"
#include "solve/simulate/flows.hpp"
#include "solve/simulate/sim_program.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

void add_timeline(nb::dict& result, const std::vector<LinkRate>& timeline) {
  std::vector<double> times, rate;
  std::vector<std::int32_t> link;
  for (const LinkRate& entry : timeline) {
    times.push_back(entry.time);
    link.push_back(static_cast<std::int32_t>(entry.link));
    rate.push_back(entry.rate);
  }
  result["times"] = array_of(std::move(times));
  result["link"] = array_of(std::move(link));
  result["rate"] = array_of(std::move(rate));
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
  add_timeline(result, found.timeline);
  return result;
}

nb::dict simulate_lanes(const Column<std::int64_t>& lane_offset, const Column<std::int64_t>& lane_slices,
                        const Column<std::int64_t>& skew, const Column<std::int32_t>& out,
                        const Column<std::int32_t>& into, const Column<std::uint8_t>& signals,
                        const Column<std::int64_t>& need_offset, const Column<std::int32_t>& need,
                        const Column<std::int64_t>& chunk_offset, const Column<std::int32_t>& chunk,
                        const Column<double>& chunk_bytes, const Column<double>& slice_bytes,
                        const Column<std::uint8_t>& kind, const Column<std::int32_t>& feeder,
                        const Column<std::int32_t>& drainer, const Column<std::int64_t>& flow_offset,
                        const Column<std::int32_t>& flow, const Column<std::int32_t>& route,
                        const Column<std::int64_t>& path_offset, const Column<std::int32_t>& link,
                        const Column<double>& weight, const Column<double>& latency, const Column<double>& capacity,
                        std::int64_t fifo_depth, bool buffered, bool every_slice) {
  const SimProgram program{.lane_offset = span_of(lane_offset),
                           .lane_slices = span_of(lane_slices),
                           .skew = span_of(skew),
                           .out = span_of(out),
                           .into = span_of(into),
                           .signals = span_of(signals),
                           .need_offset = span_of(need_offset),
                           .need = span_of(need),
                           .chunk_offset = span_of(chunk_offset),
                           .chunk = span_of(chunk),
                           .chunk_bytes = span_of(chunk_bytes),
                           .slice_bytes = span_of(slice_bytes),
                           .kind = span_of(kind),
                           .feeder = span_of(feeder),
                           .drainer = span_of(drainer),
                           .flow_offset = span_of(flow_offset),
                           .flow = span_of(flow),
                           .route = span_of(route),
                           .path_offset = span_of(path_offset),
                           .link = span_of(link),
                           .weight = span_of(weight),
                           .latency = span_of(latency),
                           .capacity = span_of(capacity),
                           .fifo_depth = fifo_depth,
                           .buffered = buffered};
  SimTimes found;
  {
    const nb::gil_scoped_release unlocked;
    found = simulate(program, every_slice);
  }
  nb::dict result;
  result["seconds"] = found.seconds;
  result["stuck_row"] = found.stuck_row;
  result["stuck_slice"] = found.stuck_slice;
  result["row"] = array_of(std::move(found.row));
  result["slice"] = array_of(std::move(found.slice));
  result["path"] = array_of(std::move(found.path));
  result["start"] = array_of(std::move(found.start));
  result["left"] = array_of(std::move(found.left));
  result["arrival"] = array_of(std::move(found.arrival));
  add_timeline(result, found.timeline);
  return result;
}

}  // namespace
}  // namespace syntony

void bind_simulator(nb::module_& m) {
  m.def("simulate_flows", &syntony::simulate_flows, nb::kw_only(), "bytes"_a, "latency"_a, "release"_a,
        "after_offset"_a, "after"_a, "after_left_offset"_a, "after_left"_a, "set"_a, "policy"_a, "set_offset"_a,
        "path_offset"_a, "link"_a, "weight"_a, "capacity"_a, "timeline"_a,
        "Simulates flows on fairly shared links: the columns of synth.simulation.flows.Flows in, those of FlowTimes "
        "out.");
  m.def("simulate_lanes", &syntony::simulate_lanes, nb::kw_only(), "lane_offset"_a, "lane_slices"_a, "skew"_a, "out"_a,
        "into"_a, "signals"_a, "need_offset"_a, "need"_a, "chunk_offset"_a, "chunk"_a, "chunk_bytes"_a, "slice_bytes"_a,
        "kind"_a, "feeder"_a, "drainer"_a, "flow_offset"_a, "flow"_a, "route"_a, "path_offset"_a, "link"_a, "weight"_a,
        "latency"_a, "capacity"_a, "fifo_depth"_a, "buffered"_a, "every_slice"_a,
        "Simulates a Program's lanes on fairly shared links: the columns of a SimProgram in, messages out.");
}
