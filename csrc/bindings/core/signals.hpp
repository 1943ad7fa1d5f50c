// Ctrl-C while a thread waits in the runtime: Python runs handlers in its main thread, between two bytecodes, and a
// wait in the runtime is a single call. So a wait checks for signals itself (ProgressEngine::set_interrupt).
#pragma once

#include <Python.h>
#include <unistd.h>

#include <exception>

namespace syntony {

/// A handler has raised; its exception is the thread's Python error, for the front end to pass on.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "a signal's handler raised"; }
};

/// Runs the handlers of pending signals. Call without the interpreter's lock, and from any thread: only Python's main
/// thread has handlers to run. Throws Interrupted.
inline void run_signal_handlers() {
  if (::gettid() != ::getpid() || Py_IsInitialized() == 0) return;
  const PyGILState_STATE lock = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(lock);
  if (raised) throw Interrupted();
}

}  // namespace syntony
