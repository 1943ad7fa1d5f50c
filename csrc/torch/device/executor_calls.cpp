#include "torch/device/executor_calls.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <tuple>
#include <utility>
#include <vector>

#include "bindings/core/group/process.hpp"
#include "torch/errors.hpp"

namespace syntony::glue {

namespace py = pybind11;

struct ExecutorCalls::Group {
  py::object python;
};

namespace {

/// Calls Python, from any thread. A ValueError is the caller's mistake; any other error is a failure between ranks.
template <typename Action>
auto in_python(const Action& action) {
  const py::gil_scoped_acquire locked;
  try {
    return action();
  } catch (const py::error_already_set& error) {
    const bool invalid = error.matches(PyExc_ValueError);
    const std::string said = py::str(error.value());
    TORCH_CHECK(!invalid, said);
    TORCH_CHECK_WITH(DistBackendError, false, said);
  }
}

py::module_ python_calls() { return py::module_::import("syntony.collectives.cuda.torch_calls"); }

py::tuple described(const Call& call) {
  std::vector<std::tuple<std::uintptr_t, std::uintptr_t, std::size_t>> blocks;
  for (const Block& block : call.blocks) {
    blocks.emplace_back(reinterpret_cast<std::uintptr_t>(block.input), reinterpret_cast<std::uintptr_t>(block.output),
                        block.elements);
  }
  return py::make_tuple(std::string(name_of(call.collective)), std::string(name_of(call.op)), call.root, blocks,
                        call.even, std::string(name_of(call.dtype)), call.options.algorithm);
}

}  // namespace

std::shared_ptr<ExecutorCalls> ExecutorCalls::form(const std::shared_ptr<Communicator>& group,
                                                   const c10::Device& device) {
  if (!device.is_cuda()) return nullptr;
  return in_python([&]() -> std::shared_ptr<ExecutorCalls> {
    const py::capsule capsule(new std::shared_ptr<Communicator>(group), kCommunicatorCapsule,
                              [](void* memory) { delete static_cast<std::shared_ptr<Communicator>*>(memory); });
    py::object formed = python_calls().attr("form")(capsule, static_cast<int>(device.index()));
    if (formed.is_none()) return nullptr;
    auto python = std::make_unique<Group>(std::move(formed));
    return std::shared_ptr<ExecutorCalls>(new ExecutorCalls(std::move(python), device, group->size()));
  });
}

ExecutorCalls::ExecutorCalls(std::unique_ptr<Group> group, const c10::Device& device, std::uint32_t ranks)
    : group_(std::move(group)), device_(device), stream_(side_stream(device)), ranks_(ranks) {}

ExecutorCalls::~ExecutorCalls() {
  if (Py_IsInitialized() == 0) {
    (void)group_->python.release();  // no interpreter is left to release it
    return;
  }
  const py::gil_scoped_acquire locked;
  group_.reset();
}

bool ExecutorCalls::takes(const Call& call) {
  // Plans are cached, one per size; sizes known to only one rank would always be new.
  if (call.scaling.factor || call.own_sizes_only()) return false;
  return in_python(
      [&] { return python_calls().attr("takes")(group_->python, described(call), call.scaling.average).cast<bool>(); });
}

std::shared_ptr<StreamFuture> ExecutorCalls::run(const std::shared_ptr<ExecutorCalls>& self, const Call& call,
                                                 const c10::Event& ready, Buffers& buffers) {
  const c10::impl::VirtualGuardImpl impl(device_.type());
  buffers.each([&](const at::Tensor& tensor) { impl.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_); });
  ready.block(stream_);
  const c10::StreamGuard guard(stream_);
  in_python([&] {
    python_calls().attr("launch")(group_->python, described(call),
                                  std::chrono::duration<double>(call.options.timeout).count());
  });
  if (call.scaling.average) {
    for (const Block& block : call.blocks) {
      if (block.output == nullptr || block.elements == 0) continue;
      memory_at(block.output, block.elements, torch_type(call.dtype), device_).div_(static_cast<double>(ranks_));
    }
  }
  buffers.copy_back();
  auto future = std::make_shared<StreamFuture>([self] { self->check(); });
  future->queued(event_on(stream_));
  return future;
}

void ExecutorCalls::check() {
  in_python([&] { group_->python.attr("check")(); });
}

void ExecutorCalls::abort(const std::string& why) {
  in_python([&] { group_->python.attr("abort")(why); });
}

void ExecutorCalls::close() {
  in_python([&] { group_->python.attr("close")(); });
}

}  // namespace syntony::glue
