// torch's one-sided windows (torch 2.15) over those of the runtime (core/one_host/window.hpp).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "torch/syntony_backend.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW
#include <memory>

#include "core/one_host/window.hpp"

namespace syntony::glue {

class TorchWindow final : public c10d::Window {
 public:
  TorchWindow(std::shared_ptr<Communicator> group, int rank) : group_(std::move(group)), rank_(rank) {}

  /// Collective. The tensor must be contiguous, in memory from allocate_tensor() or syntony.empty(), and of the same
  /// type on all ranks; its size may differ between ranks.
  void tensor_register(const at::Tensor& tensor, bool owning) override;
  void tensor_deregister() override;

  /// Has completed when it returns, whatever `async` says.
  WorkPtr put(const at::Tensor& tensor, std::int64_t rank, std::int64_t offset, bool async,
              const c10d::PutOptions& options) override;
  WorkPtr signal(std::int64_t rank, bool async, const c10d::SignalOptions& options) override;
  /// Consumes one signal: a peer's signals go to calls in the order of the calls, whichever waits first.
  WorkPtr wait_signal(std::int64_t rank, bool async, const c10d::WaitSignalOptions& options) override;
  /// The peer's own memory: with this rank's shape if it has as many elements, else flat.
  at::Tensor map_remote_tensor(std::int64_t rank) override;
  c10d::WindowAttr get_attr(std::int64_t rank) override;

 private:
  [[nodiscard]] syntony::Window& window() const;
  [[nodiscard]] std::uint32_t peer(std::int64_t rank) const;

  std::shared_ptr<Communicator> group_;
  int rank_;
  std::shared_ptr<syntony::Window> window_;  // null without a tensor
  at::Tensor tensor_;                        // a view if the window does not own it
};

}  // namespace syntony::glue
#endif
