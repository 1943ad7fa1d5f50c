#include "torch/window.hpp"

#ifdef C10D_BACKEND_HAS_WINDOW
#include <ATen/ops/from_blob.h>

#include <utility>

#include "torch/over_at_once.hpp"

namespace syntony::glue {
namespace {

/// The Work of a wait_signal.
class SignalWork final : public c10d::Work {
 public:
  SignalWork(std::shared_ptr<syntony::Window> window, int rank, std::uint32_t peer, std::chrono::milliseconds timeout)
      : c10d::Work(rank, OpType::UNKNOWN),
        window_(std::move(window)),
        peer_(peer),
        number_(window_->next(peer)),
        timeout_(timeout) {}

  bool isCompleted() override { return window_->arrived(peer_, number_); }
  bool isSuccess() const override { return window_->arrived(peer_, number_); }
  bool wait(std::chrono::milliseconds timeout) override {
    in_torch_terms([&] { window_->await(peer_, number_, timeout > kNoTimeout ? timeout : timeout_); });
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }

 private:
  std::shared_ptr<syntony::Window> window_;
  std::uint32_t peer_, number_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

c10::intrusive_ptr<c10d::Window> SyntonyBackend::new_window(const std::optional<at::Tensor>& tensor) {
  (void)communicator();
  auto window = c10::make_intrusive<TorchWindow>(communicator_, rank_);
  if (tensor) window->tensor_register(*tensor, true);
  return window;
}

syntony::Window& TorchWindow::window() const {
  TORCH_CHECK(window_, "syntony rank ", rank_, ": this window has no tensor; call tensor_register first, on all ranks");
  return *window_;
}

std::uint32_t TorchWindow::peer(std::int64_t rank) const {
  TORCH_CHECK(rank >= 0 && rank < group_->size(), "syntony rank ", rank_, ": invalid rank ", rank, " in a window of ",
              group_->size(), " ranks");
  return static_cast<std::uint32_t>(rank);
}

void TorchWindow::tensor_register(const at::Tensor& tensor, bool owning) {
  TORCH_CHECK(!window_, "syntony rank ", rank_, ": this window has a tensor; call tensor_deregister first");
  TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "syntony rank ", rank_,
              ": a window needs a contiguous tensor on the CPU");
  const std::span memory(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
  window_ = in_torch_terms([&] { return std::make_shared<syntony::Window>(group_, memory); });
  tensor_ = tensor;
  if (!owning) tensor_ = at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.options());
}

void TorchWindow::tensor_deregister() {
  (void)window();
  in_torch_terms([&] { return group_->barrier(); });  // nobody puts into it afterwards
  window_.reset();
  tensor_ = at::Tensor();
}

WorkPtr TorchWindow::put(const at::Tensor& tensor, std::int64_t rank, std::int64_t offset, bool /*async*/,
                         const c10d::PutOptions& /*options*/) {
  const syntony::Window& to = window();
  TORCH_CHECK(tensor.is_cpu() && tensor.scalar_type() == tensor_.scalar_type(), "syntony rank ", rank_,
              ": put needs a tensor of ", tensor_.scalar_type(), " on the CPU, as the window has");
  TORCH_CHECK(offset >= 0, "syntony rank ", rank_, ": put at the negative offset ", offset);
  const at::Tensor plain = tensor.contiguous();
  const std::span bytes(static_cast<const std::byte*>(plain.const_data_ptr()), plain.nbytes());
  in_torch_terms([&] { to.put(peer(rank), static_cast<std::size_t>(offset) * plain.element_size(), bytes); });
  return c10::make_intrusive<OverAtOnce>(rank_);
}

WorkPtr TorchWindow::signal(std::int64_t rank, bool /*async*/, const c10d::SignalOptions& /*options*/) {
  window().signal(peer(rank));
  return c10::make_intrusive<OverAtOnce>(rank_);
}

WorkPtr TorchWindow::wait_signal(std::int64_t rank, bool async, const c10d::WaitSignalOptions& options) {
  (void)window();
  const auto limit = std::max(options.timeout, std::chrono::milliseconds(0));  // unset: the group's
  auto work = c10::make_intrusive<SignalWork>(window_, rank_, peer(rank), limit);
  if (!async) work->wait(kNoTimeout);
  return work;
}

at::Tensor TorchWindow::map_remote_tensor(std::int64_t rank) {
  const std::uint32_t of = peer(rank);
  if (rank == rank_) return tensor_;
  const std::span<std::byte> memory = window().of(of);
  const bool alike = memory.size() == tensor_.nbytes();
  const std::vector<std::int64_t> flat{static_cast<std::int64_t>(memory.size() / tensor_.element_size())};
  return at::from_blob(
      memory.data(), alike ? tensor_.sizes() : at::IntArrayRef(flat), [held = window_->hold(of)](void*) {},
      tensor_.options());
}

c10d::WindowAttr TorchWindow::get_attr(std::int64_t rank) {
  (void)peer(rank);
  return {.access_type = c10d::WindowAccessType::UNIFIED};
}

}  // namespace syntony::glue
#endif
