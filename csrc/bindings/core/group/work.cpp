// The process's runtime and operations in flight, for Python.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <memory>
#include <optional>
#include <utility>

#include "bindings/core/group/python_communicator.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace syntony;

void bind_process(nb::module_& m) {
  nb::class_<PythonProcess>(m, "Process",
                            "The runtime in this operating system process: one progress engine for all groups.")
      .def(nb::init<>())
      .def_prop_ro("forked", [](const PythonProcess& self) { return self.value->forked(); })
      .def(
          "close", [](const PythonProcess& self) { self.value->close(); }, nb::call_guard<nb::gil_scoped_release>(),
          "Ends all groups and waits for their callbacks.")
      .def(
          "capsule",
          [](const PythonProcess& self) {
            return nb::capsule(new std::shared_ptr<Process>(self.value), kProcessCapsule,
                               [](void* memory) noexcept { delete static_cast<std::shared_ptr<Process>*>(memory); });
          },
          "For syntony._torch.");
}

void bind_work(nb::module_& m) {
  nb::class_<PythonWork>(m, "Work", "An operation in flight.")
      .def_prop_ro("done", [](const PythonWork& self) { return self.value->done(); })
      .def_prop_ro(
          "source", [](const PythonWork& self) { return self.value->source(); }, "The rank that a message came from.")
      .def_prop_ro("sequence", [](const PythonWork& self) { return self.value->descriptor().sequence; })
      .def(
          "on_done",
          [](const PythonWork& self, nb::callable callback) {
            self.value->on_done([kept = held(self.process->engine(), std::move(callback))] {
              if (!nb::is_alive()) return;
              const nb::gil_scoped_acquire lock;
              try {
                nb::handle(static_cast<const PyObject*>(kept.get()))();
              } catch (nb::python_error& error) {
                error.discard_as_unraisable("a callback of an operation");
              }
            });
          },
          "callback"_a, nb::sig("def on_done(self, callback: collections.abc.Callable[[], object]) -> None"),
          "Calls it once, when done, in error too: at once if it is, else on a thread that others do not wait for.")
      .def(
          "wait",
          [](const PythonWork& self, std::optional<double> timeout) {
            const nb::gil_scoped_release unlocked;
            return self.value->wait(timeout ? std::optional(from_seconds(*timeout)) : std::nullopt);
          },
          "timeout"_a = nb::none(),
          "Drives the operation until it is done and raises its error. False if `timeout` seconds passed first.");
}
