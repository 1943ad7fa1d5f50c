// Python's view of the simulator: columns in, columns out.
#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "bindings/columns.hpp"
#include "solve/simulate/flows.hpp"
#include "solve/simulate/list_schedule.hpp"
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

void read_paths(ColumnsOf& of, Paths& paths) {
  of.read(paths.set_offset, "set_offset");
  of.read(paths.path_offset, "path_offset");
  of.read(paths.link, "link");
  of.read(paths.weight, "weight");
}

nb::dict simulate_flows(nb::handle columns, bool timeline) {
  Flows flows;
  const nb::object paths = columns.attr("paths");
  ColumnsOf of_flows(columns), of_paths(paths);
  read_paths(of_paths, flows.paths);
  of_flows.read(flows.bytes, "bytes");
  of_flows.read(flows.latency, "latency");
  of_flows.read(flows.release, "release");
  of_flows.read(flows.after_offset, "after_offset");
  of_flows.read(flows.after, "after");
  of_flows.read(flows.after_left_offset, "after_left_offset");
  of_flows.read(flows.after_left, "after_left");
  of_flows.read(flows.set, "set");
  of_flows.read(flows.policy, "policy");
  of_flows.read(flows.capacity, "capacity");
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

nb::dict simulate_lanes(nb::handle columns, bool every_slice) {
  SimProgram program;
  const nb::object paths = columns.attr("paths");
  ColumnsOf of(columns), of_paths(paths);
  read_paths(of_paths, program.paths);
  of.read(program.lane_offset, "lane_offset");
  of.read(program.lane_slices, "lane_slices");
  of.read(program.begin, "begin");
  of.read(program.skew, "skew");
  of.read(program.out, "out");
  of.read(program.into, "into");
  of.read(program.signals, "signals");
  of.read(program.need_offset, "need_offset");
  of.read(program.need, "need");
  of.read(program.chunk_offset, "chunk_offset");
  of.read(program.chunk, "chunk");
  of.read(program.chunk_bytes, "chunk_bytes");
  of.read(program.slice_bytes, "slice_bytes");
  of.read(program.kind, "kind");
  of.read(program.feeder, "feeder");
  of.read(program.drainer, "drainer");
  of.read(program.flow_offset, "flow_offset");
  of.read(program.flow, "flow");
  of.read(program.route, "route");
  of.read(program.latency, "latency");
  of.read(program.capacity, "capacity");
  program.fifo_depth = nb::cast<std::int64_t>(columns.attr("fifo_depth"));
  program.buffered = nb::cast<bool>(columns.attr("buffered"));
  program.striped = nb::cast<bool>(columns.attr("striped"));
  const auto policy = nb::cast<std::uint8_t>(nb::int_(columns.attr("policy")));
  if (policy >= kPathPolicies) throw std::invalid_argument("policies are 0 fixed, 1 spray, 2 least_loaded");
  program.policy = static_cast<PathPolicy>(policy);
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
  result["flow"] = array_of(std::move(found.flow));
  result["bytes"] = array_of(std::move(found.bytes));
  result["cause"] = array_of(std::move(found.cause));
  result["cause_left"] = array_of(std::move(found.cause_left));
  add_timeline(result, found.timeline);
  return result;
}

nb::dict schedule_tasks(nb::handle columns) {
  Tasks tasks;
  ColumnsOf of(columns);
  tasks.links = nb::cast<std::uint32_t>(columns.attr("links"));
  of.read(tasks.seconds, "seconds");
  of.read(tasks.latency, "latency");
  of.read(tasks.lag, "lag");
  of.read(tasks.route, "route");
  of.read(tasks.offset, "offset");
  of.read(tasks.link, "link");
  of.read(tasks.waiter, "waiter");
  of.read(tasks.awaited, "awaited");
  ListSchedule found;
  {
    const nb::gil_scoped_release unlocked;
    found = list_schedule(tasks);
  }
  nb::dict result;
  result["start"] = array_of(std::move(found.start));
  result["depth"] = array_of(std::move(found.depth));
  return result;
}

}  // namespace
}  // namespace syntony

void bind_simulator(nb::module_& m) {
  m.def("simulate_flows", &syntony::simulate_flows, "flows"_a, "timeline"_a,
        nb::sig("def simulate_flows(flows: object, timeline: bool) -> dict[str, typing.Any]"),
        "Simulates flows on fairly shared links: a synth.simulation.flows.Flows in, the columns of FlowTimes out.");
  m.def("simulate_lanes", &syntony::simulate_lanes, "program"_a, "every_slice"_a,
        nb::sig("def simulate_lanes(program: object, every_slice: bool) -> dict[str, typing.Any]"),
        "Simulates a Program's lanes on fairly shared links: a SimProgram in, the columns of LaneTimes out.");
  m.def("list_schedule", &syntony::schedule_tasks, "tasks"_a,
        nb::sig("def list_schedule(tasks: object) -> dict[str, typing.Any]"),
        "When each task begins if the most urgent goes first: the columns of Tasks in, those of ListSchedule out "
        "(csrc/solve/simulate/list_schedule.hpp).");
}
