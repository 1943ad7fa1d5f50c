// Python's view of a step's simulation: columns in, columns out.
#include <nanobind/nanobind.h>

#include <utility>

#include "bindings/columns.hpp"
#include "solve/simulate/step_timeline.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

nb::dict simulate_steps(nb::handle columns, std::int32_t steps) {
  SimStep step;
  ColumnsOf of(columns);
  of.read(step.order_offset, "order_offset");
  of.read(step.order, "order");
  of.read(step.free, "free");
  of.read(step.serial, "serial");
  of.read(step.window, "window");
  of.read(step.rank, "rank");
  of.read(step.device, "device");
  of.read(step.computes, "computes");
  of.read(step.priority, "priority");
  of.read(step.seconds, "seconds");
  of.read(step.latency, "latency");
  of.read(step.bytes, "bytes");
  of.read(step.dep_offset, "dep_offset");
  of.read(step.dep, "dep");
  of.read(step.lag_offset, "lag_offset");
  of.read(step.lag, "lag");
  of.read(step.partner, "partner");
  of.read(step.out, "out");
  of.read(step.into, "into");
  step.contention = nb::cast<double>(columns.attr("contention"));
  step.steps = steps;
  StepTimes found;
  {
    const nb::gil_scoped_release unlocked;
    found = simulate(step);
  }
  nb::dict result;
  result["ready"] = array_of(std::move(found.ready));
  result["launch"] = array_of(std::move(found.launch));
  result["start"] = array_of(std::move(found.start));
  result["end"] = array_of(std::move(found.end));
  result["wait"] = array_of(std::move(found.wait));
  result["blame"] = array_of(std::move(found.blame));
  return result;
}

}  // namespace
}  // namespace syntony

void bind_overlap(nb::module_& m) {
  m.def("simulate_steps", &syntony::simulate_steps, "step"_a, "steps"_a,
        nb::sig("def simulate_steps(step: object, steps: int) -> dict[str, typing.Any]"),
        "Simulates steps of training: an overlap.predict.sim_step.SimStep in, the columns of StepTimes out.");
}
