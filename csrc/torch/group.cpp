// SyntonyBackend beside its collectives: point-to-point, coalescing, and the life of the group.
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "torch/errors.hpp"
#include "torch/launch.hpp"
#include "torch/syntony_backend.hpp"

namespace syntony::glue {

using c10d::OpType;

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
  Launch launch(*this, OpType::SEND, "syntony:send", tensors, c10d::kUnsetTimeout, true);
  launch.send(launch.single(tensors), destination, tag);
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::recv(Tensors& tensors, int source, int tag) {
  Launch launch(*this, OpType::RECV, "syntony:recv", tensors, c10d::kUnsetTimeout, true);
  launch.receive(launch.single(tensors), static_cast<int>(launch.peer(source, "source rank")), tag);
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::recvAnysource(Tensors& tensors, int tag) {
  Launch launch(*this, OpType::RECVANYSOURCE, "syntony:recvAnySource", tensors, c10d::kUnsetTimeout, true);
  launch.receive(launch.single(tensors), -1, tag);
  return launch.finish(tensors);
}

// ---- barriers -------------------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::barrier(const c10d::BarrierOptions& options) {
  Launch launch(*this, OpType::BARRIER, "syntony:barrier", {}, options);
  launch.barrier();
  return launch.finish({});
}

void SyntonyBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool /*wait_all_ranks*/) {
  CallOptions call;
  if (options.timeout != c10d::kUnsetTimeout) call.timeout = std::max(options.timeout, std::chrono::milliseconds(1));
  try {
    communicator().barrier(call);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::timeout) throw_torch_error(std::current_exception());
    std::string missing;
    for (const int rank : error.ranks())
      missing += ", Rank " + std::to_string(rank) + " failed to pass monitoredBarrier";
    TORCH_CHECK_WITH(DistBackendError, false, "[Rank ", rank_, "]: Rank ", rank_, " timed out in monitoredBarrier",
                     missing, ": ", error.what());
  }
}

// ---- coalescing -----------------------------------------------------------------------------------------------------

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
