// The rest of SyntonyBackend: point-to-point, coalescing, other groups, memory, and the lifetime of the group.
#include <ATen/ops/from_blob.h>

#include "core/shm/shareable_memory.hpp"
#include "torch/over_at_once.hpp"
#include "torch/tensor_call.hpp"

namespace syntony::glue {

// ---- messages, barriers, coalescing ---------------------------------------------------------------------------------

WorkPtr SyntonyBackend::send(Tensors& tensors, int destination, int tag) {
  TensorCall call(*this, OpType::SEND, "send", tensors);
  return call.send(tensors, call.peer(destination, "destination rank"), tag);
}

WorkPtr SyntonyBackend::recv(Tensors& tensors, int source, int tag) {
  TensorCall call(*this, OpType::RECV, "recv", tensors);
  return call.receive(tensors, static_cast<int>(call.peer(source, "source rank")), tag);
}

WorkPtr SyntonyBackend::recvAnysource(Tensors& tensors, int tag) {
  TensorCall call(*this, OpType::RECVANYSOURCE, "recvAnySource", tensors);
  return call.receive(tensors, -1, tag);
}

WorkPtr SyntonyBackend::barrier(const BarrierOptions& options) {
  TensorCall call(*this, OpType::BARRIER, "barrier", {}, options);
  return call.barrier(options);
}

void SyntonyBackend::monitoredBarrier(const BarrierOptions& options, bool wait_all_ranks) {
  CallOptions call;
  if (options.timeout != c10d::kUnsetTimeout) call.timeout = std::max(options.timeout, std::chrono::milliseconds(1));
  try {
    hooks_->watch([&] { return communicator().barrier(call); });
  } catch (const Error& error) {
    const auto& missing = error.ranks();
    if (error.kind() == Error::Kind::invalid || missing.empty()) {
      std::rethrow_exception(torch_error(std::current_exception()));
    }
    // gloo's own message if there was no time to wait for anybody.
    TORCH_CHECK_WITH(DistBackendError, rank_ != 0 || options.timeout.count() != 0, "[Rank 0]: Rank 0 ",
                     "timed out in monitoredBarrier after ", options.timeout.count(), " ms: ", error.what());
    const std::string who = wait_all_ranks ? c10::str("Ranks ", c10::Join(", ", missing))
                                           : c10::str("Rank ", *std::ranges::min_element(missing));
    TORCH_CHECK_WITH(DistBackendError, rank_ != 0, "[Rank 0]: ", who,
                     " failed to pass monitoredBarrier: ", error.what());
    TORCH_CHECK_WITH(
        DistBackendError, false, "[Rank ", rank_, "]: Rank ", rank_,
        " successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0: ",
        error.what());
  }
}

WorkPtr SyntonyBackend::endCoalescing() {
  std::vector<WorkPtr> members;
  {
    const std::scoped_lock lock(coalescing_mutex_);
    TORCH_CHECK(coalesced_, "syntony rank ", rank_, ": endCoalescing without startCoalescing");
    members = std::move(*coalesced_);
    coalesced_.reset();
    coalescing_ = false;
  }
  const auto together = [&]<typename W>(const c10::intrusive_ptr<W>& work) -> WorkPtr {
    for (const WorkPtr& member : members) {
      const auto part = c10::dynamic_intrusive_pointer_cast<W>(member);
      TORCH_CHECK(part, "syntony rank ", rank_, ": coalesced calls are all on the CPU, or all on one other device");
      work->add(part);
    }
    work->launched({}, timing_, nullptr, false);  // its members have reported their ends
    return work;
  };
  if (const auto first = members.empty() ? nullptr : c10::dynamic_intrusive_pointer_cast<DeviceWork>(members[0])) {
    return together(c10::make_intrusive<DeviceWork>(process_, hooks_, rank_, OpType::COALESCED, "coalesced", Tensors(),
                                                    first->device()));
  }
  return together(c10::make_intrusive<SyntonyWork>(process_, hooks_, rank_, OpType::COALESCED, "coalesced", Tensors()));
}

OnDevice& SyntonyBackend::on(const at::Device& device) {
  const std::scoped_lock lock(on_device_mutex_);
  (void)communicator();  // throws in a forked child
  if (!on_device_) on_device_ = std::make_unique<OnDevice>(process_, communicator_, device, getGroupUid());
  TORCH_CHECK(on_device_->device() == device, "syntony rank ", rank_, ": this group has begun on ",
              on_device_->device(), "; tensors on ", device, " need a group of their own");
  return *on_device_;
}

void SyntonyBackend::abort() {
  if (process_->forked() || !communicator_) return;
  left_ = former_.has_value();
  const std::string why = "torch asked rank " + std::to_string(rank_) + " to abort the group";
  communicator_->abort(why);
  if (const std::scoped_lock lock(on_device_mutex_); on_device_) on_device_->abort(why);
}

void SyntonyBackend::shutdown() {
  if (process_->forked() || !communicator_) return;
  in_torch_terms([&] {
    if (const std::scoped_lock lock(on_device_mutex_); on_device_) on_device_->shutdown();
    communicator_->shutdown();
  });
}

// ---- other groups, memory -------------------------------------------------------------------------------------------

template <typename Make>
BackendPtr SyntonyBackend::made(const OptionsPtr& options, Make&& make) {
  const auto timeout = options ? options->timeout : options_->timeout;
  const std::string name = options && !options->group_name.empty() ? options->group_name : getGroupUid();
  auto group = in_torch_terms([&] { return process_->adopt(make({.timeout = timeout, .name = name})); });
  if (!group) return nullptr;
  auto backend = c10::make_intrusive<SyntonyBackend>(process_, std::move(group), c10::make_intrusive<Options>(timeout));
  backend->set_title(title());
  return backend;
}

BackendPtr SyntonyBackend::split(const c10::intrusive_ptr<c10d::Store>& /*store*/, const std::vector<int>& ranks,
                                 const OptionsPtr& options) {
  const auto place = std::ranges::find(ranks, rank_);
  std::optional<std::uint64_t> color;
  if (place != ranks.end()) color = static_cast<std::uint64_t>(*std::ranges::min_element(ranks));
  return made(options, [&](CommunicatorOptions call) {
    return communicator().split(color, place - ranks.begin(), std::move(call));
  });
}

BackendPtr SyntonyBackend::shrink(const Rows& excluded, int flags, const OptionsPtr& options) {
  const std::vector<std::uint32_t> gone(excluded.begin(), excluded.end());
  if ((flags & 1) != 0) abort();
  return made(options, [&](CommunicatorOptions call) { return communicator().shrink(gone, std::move(call)); });
}

#ifdef C10D_BACKEND_HAS_RECONFIGURE
c10d::ReconfigureHandle SyntonyBackend::get_reconfigure_handle() const {
  TORCH_CHECK(former_, "syntony rank ", rank_, ": this group was not made with enable_reconfigure=True");
  return former_->handle;
}

WorkPtr SyntonyBackend::reconfigure(const c10d::ReconfigureOptions& options) {
  const std::string own = get_reconfigure_handle();
  std::vector<std::string> handles;
  if (const auto* const any_order = std::get_if<0>(&options.handles)) {
    handles.assign(any_order->begin(), any_order->end());
    std::ranges::sort(handles);
  } else {
    handles = std::get<1>(options.handles);
  }
  const auto place = std::ranges::find(handles, own);
  TORCH_CHECK(place != handles.end(), "syntony: the handles of the new group do not hold this rank's own, ", own);
  TORCH_CHECK(formed_.insert(options.uuid).second, "syntony: uuid ", options.uuid,
              " was already used to reconfigure this group; every call needs a new one");
  shutdown();
  {
    const std::scoped_lock lock(on_device_mutex_);
    on_device_.reset();
  }
  communicator_.reset();
  rank_ = size_ = -1;
  const auto rank = static_cast<std::size_t>(place - handles.begin());
  communicator_ = former_->form(c10::str(options.uuid, "/", handles.front(), "/", handles.size()), rank, handles.size(),
                                options.timeout.value_or(options_->timeout));
  communicator_->set_timeout(options_->timeout);
  rank_ = static_cast<int>(rank);
  size_ = static_cast<int>(handles.size());
  left_ = false;
  return c10::make_intrusive<OverAtOnce>(rank_);
}
#endif

at::Tensor SyntonyBackend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK(options.device().is_cpu(), "syntony allocates CPU tensors, not tensors on ", options.device());
  TORCH_CHECK_VALUE(size >= 0, "syntony cannot allocate a tensor of ", size, " elements");
  auto memory = in_torch_terms(
      [&] { return ShareableMemory::allocate(static_cast<std::size_t>(size) * options.dtype().itemsize()); });
  void* const data = memory->data();
  return at::from_blob(data, {size}, [memory = std::move(memory)](void*) {}, options);
}

c10d::ErrorType SyntonyBackend::getError() {
  if (!communicator_ || left_) return c10d::ErrorType::SUCCESS;
  std::exception_ptr failure = communicator().error();
  if (const std::scoped_lock lock(on_device_mutex_); !failure && on_device_) failure = on_device_->error();
  if (!failure) return c10d::ErrorType::SUCCESS;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (error.kind() == Error::Kind::timeout) return c10d::ErrorType::TIMEOUT;
    const bool remote = error.kind() == Error::Kind::dead || error.kind() == Error::Kind::aborted;
    return remote ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
  }
}

}  // namespace syntony::glue
