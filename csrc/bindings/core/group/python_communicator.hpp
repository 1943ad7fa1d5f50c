// The runtime's objects as held by Python: a process, its groups, and operations in flight. Every call that may block
// releases the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/core/group/process.hpp"
#include "bindings/core/group/python_bootstrap.hpp"
#include "bindings/core/group/tuner.hpp"
#include "core/call.hpp"
#include "core/error.hpp"

namespace syntony {

/// Rounded up, so that no positive wait becomes "the default" (0).
inline std::chrono::milliseconds from_seconds(double seconds) {
  if (std::isnan(seconds) || seconds < 0) throw std::invalid_argument("a timeout is a number of seconds, not negative");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(std::min(seconds, 1e12) * 1e3)));
}

/// Keeps a Python object alive for the runtime. If the last holder does not hold the interpreter's lock, a completion
/// thread waits for the lock instead.
inline std::shared_ptr<const void> held(ProgressEngine& engine, nanobind::object object) {
  return {object.release().ptr(), [&engine](PyObject* pointer) {
            if (PyGILState_Check() == 1) {
              Py_DECREF(pointer);
              return;
            }
            engine.completions().later([pointer] {
              if (!nanobind::is_alive()) return;
              const nanobind::gil_scoped_acquire lock;
              Py_DECREF(pointer);
            });
          }};
}

struct PythonProcess {
  std::shared_ptr<Process> value = std::make_shared<Process>();
};

struct PythonWork {
  std::shared_ptr<Process> process;  // the progress engine outlives the Work
  std::shared_ptr<Work> value;
};

class PythonCommunicator {
 public:
  PythonCommunicator(const PythonProcess& process, const nanobind::object& bootstrap, double timeout, std::string name,
                     std::vector<std::uint32_t> job_ranks, const nanobind::object& tuner)
      : process_(process.value) {
    PythonBootstrap adapter(bootstrap);
    CommunicatorOptions options{.timeout = from_seconds(timeout),
                                .name = std::move(name),
                                .job_ranks = std::move(job_ranks),
                                .tuner = PythonTuner::of(tuner)};
    const nanobind::gil_scoped_release unlocked;
    group_ = process_->join(adapter, std::move(options));
  }
  PythonCommunicator(std::shared_ptr<Process> process, std::shared_ptr<Communicator> group)
      : process_(std::move(process)), group_(std::move(group)) {}
  ~PythonCommunicator() {
    const nanobind::gil_scoped_release unlocked;
    group_.reset();
  }
  PythonCommunicator(const PythonCommunicator&) = delete;
  PythonCommunicator& operator=(const PythonCommunicator&) = delete;

  [[nodiscard]] Communicator& group() const {
    if (process_->forked()) {
      throw Error(Error::Kind::invalid,
                  "this process was forked from the one that made the group; a child must make its own");
    }
    return *group_;
  }

  [[nodiscard]] CallOptions options(std::string algorithm, double timeout, bool async,
                                    nanobind::object keep_alive) const {
    CallOptions options;
    options.algorithm = std::move(algorithm);
    options.timeout = from_seconds(timeout);
    options.async = async;
    if (async) options.keep_alive = held(process_->engine(), std::move(keep_alive));
    return options;
  }

  /// split() or shrink(): a new group, or None.
  template <typename Make>
  PythonCommunicator* made(Make&& make) const {
    const nanobind::gil_scoped_release unlocked;
    std::shared_ptr<Communicator> other = process_->adopt(make(group()));
    return other == nullptr ? nullptr : new PythonCommunicator(process_, std::move(other));
  }

  [[nodiscard]] nanobind::capsule capsule() const {
    return nanobind::capsule(new std::shared_ptr<Communicator>(group_), kCommunicatorCapsule,
                             [](void* memory) noexcept { delete static_cast<std::shared_ptr<Communicator>*>(memory); });
  }

  /// Returns None if the operation is already over.
  template <typename Start>
  std::optional<PythonWork> started(Start&& start) const {
    const nanobind::gil_scoped_release unlocked;
    std::shared_ptr<Work> work = start(group());
    if (!work) return std::nullopt;
    return PythonWork{process_, std::move(work)};
  }

 private:
  std::shared_ptr<Process> process_;
  std::shared_ptr<Communicator> group_;
};

}  // namespace syntony
