// Python's view of a step's simulation: columns in, columns out.
#include <nanobind/nanobind.h>

#include <utility>

#include "bindings/columns.hpp"
#include "solve/simulate/step_timeline.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

nb::dict simulate_steps(const Column<std::int64_t>& order_offset, const Column<std::int32_t>& order,
                        const Column<std::uint8_t>& free, const Column<std::uint8_t>& serial,
                        const Column<double>& window, const Column<std::int32_t>& rank,
                        const Column<std::int32_t>& device, const Column<double>& overhead,
                        const Column<std::uint8_t>& computes, const Column<double>& priority,
                        const Column<double>& seconds, const Column<double>& latency, const Column<double>& bytes,
                        const Column<std::int64_t>& dep_offset, const Column<std::int32_t>& dep,
                        const Column<std::int64_t>& lag_offset, const Column<std::int32_t>& lag,
                        const Column<std::int32_t>& partner, const Column<std::int32_t>& out,
                        const Column<std::int32_t>& into, double contention, std::int32_t steps) {
  const StepPlan plan{.order_offset = span_of(order_offset),
                      .order = span_of(order),
                      .free = span_of(free),
                      .serial = span_of(serial),
                      .window = span_of(window),
                      .rank = span_of(rank),
                      .device = span_of(device),
                      .overhead = span_of(overhead),
                      .computes = span_of(computes),
                      .priority = span_of(priority),
                      .seconds = span_of(seconds),
                      .latency = span_of(latency),
                      .bytes = span_of(bytes),
                      .dep_offset = span_of(dep_offset),
                      .dep = span_of(dep),
                      .lag_offset = span_of(lag_offset),
                      .lag = span_of(lag),
                      .partner = span_of(partner),
                      .out = span_of(out),
                      .into = span_of(into),
                      .contention = contention,
                      .steps = steps};
  StepTimes found;
  {
    const nb::gil_scoped_release unlocked;
    found = simulate(plan);
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
  m.def("simulate_steps", &syntony::simulate_steps, nb::kw_only(), "order_offset"_a, "order"_a, "free"_a, "serial"_a,
        "window"_a, "rank"_a, "device"_a, "overhead"_a, "computes"_a, "priority"_a, "seconds"_a, "latency"_a, "bytes"_a,
        "dep_offset"_a, "dep"_a, "lag_offset"_a, "lag"_a, "partner"_a, "out"_a, "into"_a, "contention"_a, "steps"_a,
        "Simulates steps of training: the columns of StepPlan (csrc/solve/simulate/step_timeline.hpp) in, times out.");
}
