// syntony._torch: the torch backend, as created lazily by collectives/torch_backend/backend.py. Built for one version
// of torch.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "torch/queues/bind.hpp"
#include "torch/syntony_backend.hpp"

namespace py = pybind11;

namespace {
template <typename T>
T value_in(const py::capsule& capsule, const char* name) {
  const bool named = capsule.name() != nullptr && std::string_view(capsule.name()) == name;
  TORCH_CHECK_TYPE(named, "expected a capsule named ", name);
  return *capsule.get_pointer<T>();
}

/// Calls a Python function that makes a Communicator's capsule. The caller and the last owner may not hold the
/// interpreter's lock.
decltype(syntony::glue::SyntonyBackend::Former::form) former(const py::object& form) {
  const std::shared_ptr<py::object> held(new py::object(form), [](py::object* object) {
    const py::gil_scoped_acquire lock;
    delete object;
  });
  return [held](const std::string& key, std::size_t rank, std::size_t size, std::chrono::milliseconds timeout) {
    const py::gil_scoped_acquire lock;
    const py::capsule group = (*held)(key, rank, size, timeout);
    return value_in<std::shared_ptr<syntony::Communicator>>(group, syntony::kCommunicatorCapsule);
  };
}
}  // namespace

PYBIND11_MODULE(_torch, m) {
  using namespace syntony;
  using glue::SyntonyBackend;
  m.doc() = "The torch.distributed backend over syntony._core.";
  py::module_::import("torch.distributed");  // c10d's own types
  m.attr("TORCH_VERSION") = TORCH_VERSION;

  py::class_<SyntonyBackend, c10d::Backend, c10::intrusive_ptr<SyntonyBackend>> backend(m, "SyntonyBackend");
  backend
      .def(py::init([](const py::capsule& process, const py::capsule& group, std::chrono::milliseconds timeout) {
             return c10::make_intrusive<SyntonyBackend>(
                 value_in<std::shared_ptr<Process>>(process, kProcessCapsule),
                 value_in<std::shared_ptr<Communicator>>(group, kCommunicatorCapsule),
                 c10::make_intrusive<SyntonyBackend::Options>(timeout));
           }),
           py::arg("process"), py::arg("group"), py::arg("timeout"))
      .def_static(
          "reconfigurable",
          [](const py::capsule& process, std::string handle, const py::object& form,
             std::chrono::milliseconds timeout) {
            return c10::make_intrusive<SyntonyBackend>(value_in<std::shared_ptr<Process>>(process, kProcessCapsule),
                                                       SyntonyBackend::Former{std::move(handle), former(form)},
                                                       c10::make_intrusive<SyntonyBackend::Options>(timeout));
          },
          py::arg("process"), py::arg("handle"), py::arg("form"), py::arg("timeout"))
      .def_property_readonly("options", &SyntonyBackend::getBackendOptions)  // not every torch version binds it
      .def_property("title", &SyntonyBackend::title, &SyntonyBackend::set_title)
      .def("group", [](const SyntonyBackend& self) {
        return py::capsule(new std::shared_ptr<Communicator>(self.shared()), kCommunicatorCapsule,
                           [](void* memory) { delete static_cast<std::shared_ptr<Communicator>*>(memory); });
      });

  using Options = SyntonyBackend::Options;
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(backend, "Options")
      .def(py::init<std::chrono::milliseconds>(), py::arg("timeout") = kBackendDefaultTimeout)
      .def_readwrite("priority", &Options::priority)
      .def("__deepcopy__", [](const Options& self, const py::dict&) { return self.clone(); });
  overlap::bind(m);
}
