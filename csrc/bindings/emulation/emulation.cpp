// syntony._emulation: hardware emulated in software, as seen from Python.
#include <nanobind/nanobind.h>

void bind_aggregation(nanobind::module_& m);
void bind_delay(nanobind::module_& m);

NB_MODULE(_emulation, m) {
  m.doc() = "A switch that adds and its clients, and the delays of emulated wires.";
  nanobind::module_::import_("syntony._core");  // translates the runtime's errors to Python's
  bind_aggregation(m);
  bind_delay(m);
}
