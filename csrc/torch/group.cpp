// SyntonyBackend beside its collectives: point-to-point, coalescing, other groups, memory, and the life of the group.
#include <ATen/ops/from_blob.h>

#include "core/shm/shareable_memory.hpp"
#include "torch/launch.hpp"

namespace syntony::glue {

using c10d::OpType;

namespace {

WorkPtr receive(Launch& launch, Tensors& tensors, int source, int tag) {
  const at::Tensor& tensor = launch.single(tensors);
  launch.require(tag >= 0, "invalid tag: ", tag, "; tags are not negative");
  launch.start([&](Communicator& group, const CallOptions& options) {
    return group.receive(launch.buffers().output(tensor), tensor.nbytes(), source, static_cast<std::uint64_t>(tag),
                         options);
  });
  return launch.finish(tensors);
}

}  // namespace

SyntonyBackend::SyntonyBackend(std::shared_ptr<Process> process, std::shared_ptr<Communicator> communicator,
                               c10::intrusive_ptr<Options> options)
    : c10d::Backend(static_cast<int>(communicator->rank()), static_cast<int>(communicator->size())),
      process_(std::move(process)),
      communicator_(std::move(communicator)),
      options_(std::move(options)) {
  init();
}

Communicator& SyntonyBackend::communicator() const {
  TORCH_CHECK(!process_->forked(), "syntony rank ", rank_,
              ": this process was forked from the one that made the group; a child must make its own");
  return *communicator_;
}

// ---- point-to-point -------------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::send(Tensors& tensors, int destination, int tag) {
  Launch launch(*this, OpType::SEND, "syntony:send", tensors);
  const at::Tensor& tensor = launch.single(tensors);
  const std::uint32_t to = launch.peer(destination, "destination rank");
  launch.require(tag >= 0, "invalid tag: ", tag, "; tags are not negative");
  launch.start([&](Communicator& group, const CallOptions& options) {
    return group.send(launch.buffers().input(tensor), tensor.nbytes(), to, static_cast<std::uint64_t>(tag), options);
  });
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::recv(Tensors& tensors, int source, int tag) {
  Launch launch(*this, OpType::RECV, "syntony:recv", tensors);
  return receive(launch, tensors, static_cast<int>(launch.peer(source, "source rank")), tag);
}

WorkPtr SyntonyBackend::recvAnysource(Tensors& tensors, int tag) {
  Launch launch(*this, OpType::RECVANYSOURCE, "syntony:recvAnySource", tensors);
  return receive(launch, tensors, -1, tag);
}

// ---- barriers -------------------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::barrier(const c10d::BarrierOptions& options) {
  Launch launch(*this, OpType::BARRIER, "syntony:barrier", {}, options);
  launch.start([](Communicator& group, const CallOptions& call) { return group.barrier(call); });
  return launch.finish({});
}

void SyntonyBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  CallOptions call;
  if (options.timeout != c10d::kUnsetTimeout) call.timeout = std::max(options.timeout, std::chrono::milliseconds(1));
  try {
    communicator().barrier(call);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::timeout) std::rethrow_exception(torch_error(std::current_exception()));
    std::string missing;
    for (const int rank : error.ranks())
      missing += ", Rank " + std::to_string(rank) + " failed to pass monitoredBarrier";
    TORCH_CHECK_WITH(DistBackendError, false, "[Rank ", rank_, "]: Rank ", rank_, " timed out in monitoredBarrier",
                     missing, ": ", error.what());
  }
}

// ---- coalescing -----------------------------------------------------------------------------------------------------

void SyntonyBackend::coalesce(c10::intrusive_ptr<SyntonyWork> work) {
  const std::scoped_lock lock(coalescing_mutex_);
  if (coalesced_) coalesced_->push_back(std::move(work));
}

bool SyntonyBackend::coalescing() {
  const std::scoped_lock lock(coalescing_mutex_);
  return coalesced_.has_value();
}

void SyntonyBackend::startCoalescing() {
  const std::scoped_lock lock(coalescing_mutex_);
  TORCH_CHECK(!coalesced_, "syntony rank ", rank_, ": startCoalescing inside another one");
  coalesced_.emplace();
}

WorkPtr SyntonyBackend::endCoalescing() {
  std::vector<c10::intrusive_ptr<SyntonyWork>> members;
  {
    const std::scoped_lock lock(coalescing_mutex_);
    TORCH_CHECK(coalesced_, "syntony rank ", rank_, ": endCoalescing without startCoalescing");
    members = std::move(*coalesced_);
    coalesced_.reset();
  }
  auto work = c10::make_intrusive<SyntonyWork>(process_, rank_, OpType::COALESCED, "syntony:coalesced", Tensors());
  for (const auto& member : members) work->add(member);
  work->launched({});
  return work;
}

// ---- other groups, memory -------------------------------------------------------------------------------------------

template <typename Make>
c10::intrusive_ptr<c10d::Backend> SyntonyBackend::made(const c10::intrusive_ptr<c10d::Backend::Options>& options,
                                                       Make&& make) {
  const auto timeout = options ? options->timeout : options_->timeout;
  const std::string name = options && !options->group_name.empty() ? options->group_name : getGroupUid();
  auto group = in_torch_terms([&] { return process_->adopt(make({.timeout = timeout, .name = name})); });
  if (!group) return nullptr;
  return c10::make_intrusive<SyntonyBackend>(process_, std::move(group), c10::make_intrusive<Options>(timeout));
}

c10::intrusive_ptr<c10d::Backend> SyntonyBackend::split(const c10::intrusive_ptr<c10d::Store>& /*store*/,
                                                        const std::vector<int>& ranks,
                                                        const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto place = std::ranges::find(ranks, rank_);
  std::optional<std::uint64_t> color;
  if (place != ranks.end()) color = static_cast<std::uint64_t>(*std::ranges::min_element(ranks));
  return made(options, [&](CommunicatorOptions call) {
    return communicator().split(color, place - ranks.begin(), std::move(call));
  });
}

c10::intrusive_ptr<c10d::Backend> SyntonyBackend::shrink(const std::vector<int64_t>& excluded, int flags,
                                                         const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const std::vector<std::uint32_t> gone(excluded.begin(), excluded.end());
  if ((flags & 1) != 0) abort();
  return made(options, [&](CommunicatorOptions call) { return communicator().shrink(gone, std::move(call)); });
}

at::Tensor SyntonyBackend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK(options.device().is_cpu(), "syntony allocates CPU tensors, not tensors on ", options.device());
  TORCH_CHECK_VALUE(size >= 0, "syntony cannot allocate a tensor of ", size, " elements");
  auto memory = in_torch_terms(
      [&] { return ShareableMemory::allocate(static_cast<std::size_t>(size) * options.dtype().itemsize()); });
  void* const data = memory->data();
  return at::from_blob(data, {size}, [memory = std::move(memory)](void*) {}, options);
}

// ---- the group's life -----------------------------------------------------------------------------------------------

void SyntonyBackend::setTimeout(std::chrono::milliseconds timeout) {
  options_->timeout = timeout;
  communicator().set_timeout(timeout);
}

c10d::ErrorType SyntonyBackend::getError() {
  const std::exception_ptr failure = communicator().error();
  if (!failure) return c10d::ErrorType::SUCCESS;
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (error.kind() == Error::Kind::timeout) return c10d::ErrorType::TIMEOUT;
    const bool remote = error.kind() == Error::Kind::dead || error.kind() == Error::Kind::aborted;
    return remote ? c10d::ErrorType::REMOTE_ERROR : c10d::ErrorType::COMM_ERROR;
  }
}

void SyntonyBackend::abort() {
  if (!process_->forked()) communicator_->abort("torch asked rank " + std::to_string(rank_) + " to abort the group");
}

void SyntonyBackend::shutdown() {
  if (!process_->forked()) in_torch_terms([&] { communicator_->shutdown(); });
}

}  // namespace syntony::glue
