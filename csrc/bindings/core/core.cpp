// syntony._core: the compiled core as Python sees it. Every part binds itself.
#include <nanobind/nanobind.h>

void bind_aggregation(nanobind::module_& m);
void bind_kernels(nanobind::module_& m);
void bind_stream_copy(nanobind::module_& m);
void bind_graph(nanobind::module_& m);
void bind_forest(nanobind::module_& m);
void bind_packing(nanobind::module_& m);
void bind_exchange(nanobind::module_& m);
void bind_mending(nanobind::module_& m);
void bind_program(nanobind::module_& m);
void bind_communicator(nanobind::module_& m);
void bind_memory(nanobind::module_& m);
void bind_recorder(nanobind::module_& m);
void bind_simulator(nanobind::module_& m);
void bind_delay(nanobind::module_& m);
void bind_overlap(nanobind::module_& m);

NB_MODULE(_core, m) {
  m.doc() = "The compiled core: Programs, their execution, graph algorithms, simulation, and arithmetic on buffers.";
  bind_kernels(m);
  bind_stream_copy(m);
  bind_aggregation(m);
  bind_graph(m);
  bind_forest(m);
  bind_packing(m);
  bind_exchange(m);
  bind_mending(m);
  bind_program(m);
  bind_communicator(m);
  bind_memory(m);
  bind_recorder(m);
  bind_simulator(m);
  bind_delay(m);
  bind_overlap(m);
}
