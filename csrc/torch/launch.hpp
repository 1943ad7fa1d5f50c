// What all calls of SyntonyBackend have in common: check the arguments, lay out blocks, start, hand out a Work.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "torch/syntony_backend.hpp"

namespace syntony::glue {

using Counts = std::vector<std::size_t>;

/// One call. Its methods throw c10::Error, naming rank and operation, when an argument is wrong.
class Launch {
 public:
  /// `title` names the operation in profiles and messages: "syntony:all_reduce".
  Launch(SyntonyBackend& backend, c10d::OpType type, const char* title, const Tensors& inputs,
         std::chrono::milliseconds timeout = c10d::kUnsetTimeout, bool async = true);
  template <typename Options>  // c10d's options all have these two, and no base
  Launch(SyntonyBackend& backend, c10d::OpType type, const char* title, const Tensors& inputs, const Options& options)
      : Launch(backend, type, title, inputs, options.timeout, options.asyncOp) {}

  // Arguments. The texts are those that torch's own tests look for.

  template <typename... Words>
  void require(bool condition, const Words&... what) const {
    TORCH_CHECK(condition, "syntony rank ", backend_.getRank(), ": ", title_ + sizeof("syntony:") - 1, ": ", what...);
  }
  /// As c10d's own checks want it.
  [[nodiscard]] std::function<void(const std::string&)> failing() const;
  void check_dense(const at::Tensor& tensor) const;
  /// The only tensor of `tensors`, dense and on the CPU. `role` stands in the message: "input ".
  const at::Tensor& single(const Tensors& tensors, const char* role = "") const;
  /// One dense CPU tensor per rank, of `like`'s type; of its size too if `even`, else only this rank's own.
  void check_list(const Tensors& tensors, const at::Tensor& like, bool even) const;
  const Tensors& single_list(const std::vector<Tensors>& lists, const at::Tensor& like, bool even) const;
  /// `whole` is as large as one `part` per rank; `what` says so.
  void check_parts(const at::Tensor& whole, const at::Tensor& part, const char* what) const;
  [[nodiscard]] std::uint32_t peer(std::int64_t rank, const char* what = "root rank") const;

  // Memory: one block per rank, in the tensors of a list, or one after the other in one tensor.

  [[nodiscard]] Buffers& buffers() const { return *work_->buffers(); }
  [[nodiscard]] std::vector<Block> inputs(const Tensors& list) const;
  [[nodiscard]] std::vector<Block> outputs(const Tensors& list) const;
  [[nodiscard]] std::vector<Block> inputs(const at::Tensor& whole, const Counts& counts) const;
  [[nodiscard]] std::vector<Block> outputs(const at::Tensor& whole, const Counts& counts) const;
  /// `whole` cut evenly, or by rows of its first dimension.
  [[nodiscard]] Counts parts(const at::Tensor& whole, const std::vector<std::int64_t>& rows = {}) const;
  [[nodiscard]] std::vector<Block> nowhere(const at::Tensor& like) const;

  // Running.

  /// A collective that only moves data.
  void move(Collective collective, at::ScalarType type, std::uint32_t root, std::vector<Block> blocks,
            bool even = true);
  /// A collective that reduces.
  void reduce(Collective collective, const at::Tensor& like, const c10d::ReduceOp& op, std::uint32_t root,
              std::vector<Block> blocks, bool even = true);
  /// Anything else: `call(communicator, options)` starts it.
  template <typename Call>
  void start(Call&& call) {
    in_torch_terms([&] { work_->add(call(backend_.communicator(), options_)); });
  }
  /// `outputs` is the result that futures carry.
  WorkPtr finish(Tensors outputs);

 private:
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(backend_.getSize()); }

  SyntonyBackend& backend_;
  const char* title_;
  bool coalescing_;
  CallOptions options_;
  c10::intrusive_ptr<SyntonyWork> work_;
};

}  // namespace syntony::glue
