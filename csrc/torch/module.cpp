// csrc._torch: the torch backend, as the lazy creator of collectives/torch_backend.py makes it. Built for one torch.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "bindings/process.hpp"
#include "torch/errors.hpp"
#include "torch/store_bootstrap.hpp"
#include "torch/syntony_backend.hpp"

namespace py = pybind11;

namespace syntony::glue {
namespace {

template <typename T>
T& value_in(const py::capsule& capsule, const char* name) {
  if (capsule.name() == nullptr || std::string_view(capsule.name()) != name) {
    throw py::type_error(std::string("expected a capsule named ") + name);
  }
  return *capsule.get_pointer<T>();
}

c10::intrusive_ptr<SyntonyBackend> create(const py::capsule& process_capsule, c10::intrusive_ptr<c10d::Store> store,
                                          int rank, int size, std::chrono::milliseconds timeout, std::string group) {
  std::shared_ptr<Process> process = value_in<std::shared_ptr<Process>>(process_capsule, kProcessCapsule);
  const py::gil_scoped_release release;
  StoreBootstrap bootstrap(std::move(store), rank, size, timeout, group);
  std::shared_ptr<Communicator> communicator =
      in_torch_terms([&] { return process->join(bootstrap, {.timeout = timeout, .name = std::move(group)}); });
  return c10::make_intrusive<SyntonyBackend>(std::move(process), std::move(communicator),
                                             c10::make_intrusive<SyntonyBackend::Options>(timeout));
}

}  // namespace
}  // namespace syntony::glue

PYBIND11_MODULE(_torch, m) {
  using syntony::glue::SyntonyBackend;
  m.doc() = "The torch.distributed backend over csrc._core.";
  py::module_::import("torch.distributed");  // c10d's own types

  py::class_<SyntonyBackend, c10d::Backend, c10::intrusive_ptr<SyntonyBackend>> backend(m, "SyntonyBackend");
  backend.def_property_readonly("boxes", [](const SyntonyBackend& self) { return self.communicator().boxes(); });
  backend.def(
      "add_program",
      [](SyntonyBackend& self, const std::string& name, const py::capsule& program) {
        const auto& value = syntony::glue::value_in<const syntony::Program>(program, syntony::kProgramCapsule);
        syntony::glue::in_torch_terms([&] { self.communicator().add_program(name, value); });
      },
      py::arg("name"), py::arg("program"), "Makes a proven Program (a capsule from csrc._core) available by name.");

  py::class_<SyntonyBackend::Options, c10d::Backend::Options, c10::intrusive_ptr<SyntonyBackend::Options>>(backend,
                                                                                                           "Options")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout)
      .def("__deepcopy__", [](const SyntonyBackend::Options& self, const py::dict&) {
        return c10::make_intrusive<SyntonyBackend::Options>(self);
      });

  m.def("create", &syntony::glue::create, py::arg("process"), py::arg("store"), py::arg("rank"), py::arg("size"),
        py::arg("timeout"), py::arg("group"), "Meets the other ranks through `store`. Collective.");
}
