// The delay line of emulated wires.
#include <nanobind/nanobind.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <tuple>
#include <vector>

#include "emulation/delay/delay_line.hpp"

namespace nb = nanobind;

namespace syntony {
namespace {

using Seconds = std::chrono::duration<double>;

std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, double, double> run(
    const std::vector<std::tuple<int, int, double, double>>& wires, int stop) {
  std::vector<DelayedWire> delayed;
  for (const auto& [one, other, seconds, loss] : wires) {
    delayed.push_back({one, other, std::chrono::duration_cast<std::chrono::nanoseconds>(Seconds(seconds)), loss});
  }
  const nb::gil_scoped_release unlocked;
  const DelayFigures figures = run_delay_line(delayed, stop);
  return {figures.packets, figures.dropped, figures.lost, Seconds(figures.mean_lateness).count(),
          Seconds(figures.worst_lateness).count()};
}

}  // namespace
}  // namespace syntony

void bind_delay(nb::module_& m) {
  m.def(
      "run_delay_line", &syntony::run, nb::arg("wires"), nb::arg("stop"),
      "Passes packets on between pairs of TUN descriptors (one, other, seconds, share lost) until `stop` is readable.\n"
      "Returns packets, packets dropped, packets lost, mean and worst lateness in seconds.");
}
