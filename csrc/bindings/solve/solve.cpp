// syntony._solve: what only the synthesizer and the simulators call, as seen from Python.
#include <nanobind/nanobind.h>

void bind_graph(nanobind::module_& m);
void bind_forest(nanobind::module_& m);
void bind_packing(nanobind::module_& m);
void bind_channels(nanobind::module_& m);
void bind_exchange(nanobind::module_& m);
void bind_mending(nanobind::module_& m);
void bind_simulator(nanobind::module_& m);
void bind_overlap(nanobind::module_& m);

NB_MODULE(_solve, m) {
  m.doc() = "Graph algorithms of the engines and bounds, and the simulators of schedules, programs and training steps.";
  bind_graph(m);
  bind_forest(m);
  bind_packing(m);
  bind_channels(m);
  bind_exchange(m);
  bind_mending(m);
  bind_simulator(m);
  bind_overlap(m);
}
