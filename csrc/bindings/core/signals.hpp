// Ctrl-C while a thread waits in the runtime: Python's handlers run in its main thread, between two lines of Python,
// and a wait of the runtime is one line. So a wait looks for signals by itself (ProgressEngine::set_interrupt).
#pragma once

#include <Python.h>
#include <unistd.h>

#include <exception>

namespace syntony {

/// A handler has raised; what it raised is the thread's Python error, for the front door to hand on.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "a signal's handler raised"; }
};

/// Runs the handlers of signals that came meanwhile. Call without the interpreter's lock, and from any thread: only
/// Python's main thread has handlers to run. Throws Interrupted.
inline void run_signal_handlers() {
  if (::gettid() != ::getpid() || Py_IsInitialized() == 0) return;
  const PyGILState_STATE lock = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  PyGILState_Release(lock);
  if (raised) throw Interrupted();
}

}  // namespace syntony
