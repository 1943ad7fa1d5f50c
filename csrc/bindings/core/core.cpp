// syntony._core: the runtime as seen from Python. Every part binds itself.
#include <nanobind/nanobind.h>

void bind_kernels(nanobind::module_& m);
void bind_stream_copy(nanobind::module_& m);
void bind_program(nanobind::module_& m);
void bind_collectives(nanobind::module_& m);
void bind_error(nanobind::module_& m);
void bind_process(nanobind::module_& m);
void bind_work(nanobind::module_& m);
void bind_communicator(nanobind::module_& m);
void bind_memory(nanobind::module_& m);
void bind_recorder(nanobind::module_& m);

NB_MODULE(_core, m) {
  m.doc() = "The runtime: Programs, their execution, groups of ranks, and arithmetic on buffers.";
  bind_kernels(m);
  bind_stream_copy(m);
  bind_program(m);
  bind_collectives(m);
  bind_error(m);
  bind_process(m);
  bind_work(m);
  bind_communicator(m);
  bind_memory(m);
  bind_recorder(m);
}
