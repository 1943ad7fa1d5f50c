// What all calls of SyntonyBackend share: turning tensors into a Call, and the Work in flight into torch's.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <vector>

#include "core/call.hpp"
#include "torch/syntony_backend.hpp"

namespace syntony::glue {

using Counts = std::vector<std::size_t>;
using Inputs = std::vector<InputPart>;
using Outputs = std::vector<OutputPart>;

[[nodiscard]] inline bool even(const Tensors& list) {
  return std::ranges::all_of(list, [&](const at::Tensor& tensor) { return tensor.numel() == list[0].numel(); });
}

/// One call from torch, which may be several of ours. Its methods throw c10::Error, naming rank and operation, for
/// wrong arguments.
class TensorCall {
 public:
  TensorCall(SyntonyBackend& backend, OpType type, const char* name, const Tensors& inputs,
             std::chrono::milliseconds timeout = c10d::kUnsetTimeout, bool async = true)
      : backend_(backend), name_(name), coalescing_(backend.coalescing()), waits_(!async && !coalescing_) {
    if (timeout > std::chrono::milliseconds(0)) options_.timeout = timeout;
    if (!inputs.empty() && has_streams(inputs[0].device())) {
      move_to(inputs[0].device(), type, inputs);
      return;
    }
    options_.async = !waits_ || backend.watched();
    if (!options_.async && !at::hasCallbacks() && !backend.hooked()) return;  // nobody will request a Work
    work_ = c10::make_intrusive<SyntonyWork>(backend.process(), backend.hooks(), backend.getRank(), type, name, inputs);
    options_.keep_alive = work_->buffers();
  }
  template <typename Options>  // c10d's options all have these two fields, but no common base
  TensorCall(SyntonyBackend& backend, OpType type, const char* name, const Tensors& inputs, const Options& options)
      : TensorCall(backend, type, name, inputs, options.timeout, options.asyncOp) {}

  // Arguments. The messages are those that torch's own tests expect.

  template <typename... Words>
  void require(bool condition, const Words&... what) const {
    TORCH_CHECK(condition, "syntony rank ", backend_.getRank(), ": ", name_, ": ", what...);
  }
  /// In the form that c10d's own checks expect.
  [[nodiscard]] std::function<void(const std::string&)> failing() const {
    return [this](const std::string& what) { require(false, what); };
  }
  void check_dense(const at::Tensor& tensor) const {
    require(tensor.layout() == at::kStrided, "only supports dense tensors (invalid tensor layout)");
    const at::Device device = tensor.device();
    require(device.is_cpu() || has_streams(device),
            "only supports CPU tensors and those of devices with streams, got one on ", device);
    const at::Device here = on_device_ ? on_device_->device() : at::Device(at::kCPU);
    require(device == here, "got tensors on ", here, " and ", device, "; all tensors of a call are on one device");
  }
  /// The only tensor of `tensors`, dense. `role` appears in the message: "input ".
  const at::Tensor& single(const Tensors& tensors, const char* role = "") const {
    require(!tensors.empty(), "requires non-empty ", role, "tensor list");
    require(tensors.size() == 1, "requires a single-element ", role, "tensor list");
    check_dense(tensors[0]);
    return tensors[0];
  }
  /// One dense tensor per rank, of `like`'s type; also of its size if `even`, otherwise only this rank's own.
  void check_list(const Tensors& tensors, const at::Tensor& like, bool even) const {
    require(tensors.size() == ranks(), "Incorrect list size ", tensors.size(), ". List size should be ", ranks(),
            ", same as size of the process group.");
    for (std::size_t i = 0; i < ranks(); ++i) {
      check_dense(tensors[i]);
      require(tensors[i].scalar_type() == like.scalar_type(), "invalid tensor type at index ", i, " (expected ",
              like.scalar_type(), ", got ", tensors[i].scalar_type(), ")");
      const bool any_size = !even && i != backend_.self();
      require(any_size || tensors[i].numel() == like.numel(), "invalid tensor size at index ", i, " (expected ",
              like.numel(), " elements, got ", tensors[i].numel(), ")");
    }
  }
  void check_pairs(std::size_t outputs, std::size_t inputs) const {
    require(outputs == inputs, "requires input/output tensor lists to have the same length");
  }
  const Tensors& single_list(const Lists& lists, const at::Tensor& like, bool even) const {
    require(lists.size() == 1, "requires a single-element list containing a list with ", ranks(), " tensors");
    check_list(lists[0], like, even);
    return lists[0];
  }
  /// Checks that `whole` holds one `part` per rank; `what` is the error message.
  void check_parts(const at::Tensor& whole, const at::Tensor& part, const char* what) const {
    check_dense(part);
    check_dense(whole);
    require(whole.scalar_type() == part.scalar_type(), "output tensor must have the same type as input tensor, not ",
            whole.scalar_type(), " and ", part.scalar_type());
    require(whole.numel() == part.numel() * backend_.getSize(), what, " (", whole.numel(), " against ", ranks(), " x ",
            part.numel(), " elements)");
  }
  [[nodiscard]] std::uint32_t peer(std::int64_t rank, const char* what = "root rank") const {
    require(rank >= 0 && rank < backend_.getSize(), "invalid ", what, ": ", rank, " in a group of ", ranks());
    return static_cast<std::uint32_t>(rank);
  }
  [[nodiscard]] std::uint64_t checked(int tag) const {
    require(tag >= 0, "invalid tag: ", tag, "; tags are not negative");
    return static_cast<std::uint64_t>(tag);
  }
  [[nodiscard]] bool is_here(std::uint32_t rank) const { return rank == backend_.self(); }

  // Memory: one part per rank, in the tensors of a list or consecutive in one tensor, or one part for all.

  [[nodiscard]] Buffers& buffers() const {
    if (device_work_) return *device_work_->buffers();
    return work_ ? *work_->buffers() : own_;
  }
  [[nodiscard]] InputPart input(const at::Tensor& tensor) const {
    return {buffers().input(tensor), elements_of(tensor)};
  }
  [[nodiscard]] OutputPart output(const at::Tensor& tensor) const {
    return {buffers().output(tensor), elements_of(tensor)};
  }
  [[nodiscard]] Inputs inputs(const Tensors& list) const {
    Inputs parts;
    for (const at::Tensor& tensor : list) parts.push_back(input(tensor));
    return parts;
  }
  [[nodiscard]] Outputs outputs(const Tensors& list) const {
    Outputs parts;
    for (const at::Tensor& tensor : list) parts.push_back(output(tensor));
    return parts;
  }
  [[nodiscard]] Inputs inputs(const at::Tensor& whole, const Counts& counts) const {
    return consecutive(buffers().input(whole), counts, whole.element_size());
  }
  [[nodiscard]] Outputs outputs(const at::Tensor& whole, const Counts& counts) const {
    return consecutive(buffers().output(whole), counts, whole.element_size());
  }
  /// Splits `whole` evenly, or by rows of its first dimension.
  [[nodiscard]] Counts parts(const at::Tensor& whole, const Rows& rows = {}) const {
    if (rows.empty()) return Counts(ranks(), elements_of(whole) / ranks());
    const std::size_t row = whole.size(0) == 0 ? 0 : elements_of(whole) / static_cast<std::size_t>(whole.size(0));
    Counts counts;
    for (const std::int64_t count : rows) counts.push_back(static_cast<std::size_t>(count) * row);
    return counts;
  }
  /// Parts in other ranks' memory, each as large as `like`.
  template <typename PartOf>
  [[nodiscard]] std::vector<PartOf> elsewhere(const at::Tensor& like) const {
    return std::vector<PartOf>(ranks(), {nullptr, elements_of(like)});
  }

  // Running.

  /// A collective that only moves data, of `like`'s type, or bytes if we do not know that type.
  void move(Collective collective, const at::Tensor& like, std::uint32_t root, std::span<const InputPart> inputs,
            std::span<const OutputPart> outputs, bool even = true) {
    const std::optional<DType> dtype = dtype_of(like.scalar_type());
    Call call{.collective = collective,
              .dtype = dtype.value_or(DType::uint8),
              .root = root,
              .blocks = blocks_of(collective, member(root), inputs, outputs, even ? inputs[0].elements : 0),
              .even = even};
    if (!dtype) {
      for (Block& block : call.blocks) block.elements *= like.element_size();
    }
    run(std::move(call));
  }
  /// The same, with one part at each end.
  void move(Collective collective, std::uint32_t root, const at::Tensor& like, InputPart input, OutputPart output) {
    move(collective, like, root, std::span(&input, 1), std::span(&output, 1));
  }
  /// A collective that reduces.
  void reduce(Collective collective, const at::Tensor& like, const c10d::ReduceOp& op, std::uint32_t root,
              std::span<const InputPart> inputs, OutputPart output, bool even = true) {
    // By c10d's ReduceOp::RedOpType; AVG and PREMUL_SUM are sums that are scaled.
    static constexpr std::array kMeanings{ReduceOp::sum, ReduceOp::sum,  ReduceOp::product,
                                          ReduceOp::min, ReduceOp::max,  ReduceOp::band,
                                          ReduceOp::bor, ReduceOp::bxor, ReduceOp::sum};
    const std::optional<DType> dtype = dtype_of(like.scalar_type());
    require(dtype.has_value(), "cannot reduce tensors of type ", like.scalar_type());
    require(op.op_ < kMeanings.size(), "unknown ReduceOp ", static_cast<int>(op.op_));
    const Scaling scaling{.average = op.op_ == c10d::ReduceOp::AVG, .factor = factor_of(op)};
    require(!scaling.weighs() || like.is_floating_point() || like.is_complex(), "PREMUL_SUM needs a floating type");
    run({.collective = collective,
         .dtype = *dtype,
         .op = kMeanings[op.op_],
         .root = root,
         .blocks = blocks_of(collective, member(root), inputs, std::span(&output, 1)),
         .even = even,
         .scaling = scaling});
  }
  /// A sum of one block, in place.
  void reduce_in_place(Collective collective, const at::Tensor& tensor, const c10d::ReduceOp& op, std::uint32_t root) {
    const OutputPart memory = buffers().in_place(tensor);
    const InputPart input{memory.memory, memory.elements};
    reduce(collective, tensor, op, root, std::span(&input, 1), memory);
  }
  WorkPtr send(const Tensors& tensors, std::uint32_t destination, int tag) {
    const at::Tensor& tensor = single(tensors);
    const std::byte* const memory = buffers().input(tensor);
    if (on_device_) {
      arrives([&] {
        return on_device_->send(memory, tensor.nbytes(), destination, checked(tag), options_, device_work_->buffers());
      });
    } else {
      start([&](Communicator& group) {
        return group.send(memory, tensor.nbytes(), destination, checked(tag), options_);
      });
    }
    return finish(tensors);
  }
  WorkPtr receive(const Tensors& tensors, int source, int tag) {
    const at::Tensor& tensor = single(tensors);
    std::byte* const memory = buffers().output(tensor);
    if (on_device_) {
      arrives([&] {
        return on_device_->receive(memory, tensor.nbytes(), source, checked(tag), options_, device_work_->buffers());
      });
    } else {
      start(
          [&](Communicator& group) { return group.receive(memory, tensor.nbytes(), source, checked(tag), options_); });
    }
    return finish(tensors);
  }
  /// Starts after what the current stream of a device holds, if one is named. Torch's dispatcher passes on only its
  /// number.
  WorkPtr barrier(const BarrierOptions& options) {
    std::optional<at::Device> device = options.device;
    const std::optional<at::DeviceType> accelerator = at::accelerator::getAccelerator();
    if (!device && !options.device_ids.empty() && accelerator) {
      device.emplace(*accelerator, static_cast<at::DeviceIndex>(options.device_ids[0]));
    }
    if (device && has_streams(*device)) {
      move_to(*device, OpType::BARRIER, {});
      arrives([&] { return on_device_->barrier(options_, device_work_->buffers()); });
    } else {
      start([&](Communicator& group) { return group.barrier(options_); });
    }
    return finish({});
  }
  /// `outputs` is the result that futures carry. Returns null if the call was not async and there are no hooks, because
  /// torch then asks for nothing more.
  WorkPtr finish(const Tensors& outputs) {
    if (device_work_) return handed_out(device_work_, outputs);
    if (!work_) own_.copy_back();
    return handed_out(work_, outputs);
  }

 private:
  void run(Call call) {
    call.options = options_;
    if (on_device_) {
      arrives([&] { return on_device_->run(std::move(call), device_work_->buffers()); });
    } else {
      start([&](Communicator& group) { return group.run(std::move(call)); });
    }
  }
  template <typename Start>
  void start(Start&& start) {
    auto part = in_torch_terms([&] { return backend_.hooks()->watch([&] { return start(backend_.communicator()); }); });
    if (part) work_->add(std::move(part));
  }
  template <typename Start>
  void arrives(Start&& start) {
    device_work_->add(in_torch_terms([&] { return backend_.hooks()->watch(start); }));
  }
  void move_to(const at::Device& device, OpType type, const Tensors& inputs) {
    on_device_ = &backend_.on(device);
    device_work_ = c10::make_intrusive<DeviceWork>(backend_.process(), backend_.hooks(), backend_.getRank(), type,
                                                   name_, inputs, device);
  }
  template <typename W>
  WorkPtr handed_out(const c10::intrusive_ptr<W>& work, const Tensors& outputs) {
    if (work) backend_.launched(*work, outputs);
    if (coalescing_) backend_.coalesce(work);
    if (work && waits_) work->wait();
    return waits_ && !backend_.hooked() ? nullptr : WorkPtr(work);
  }
  [[nodiscard]] Member member(std::uint32_t root) const {
    return {static_cast<std::uint32_t>(backend_.getRank()), static_cast<std::uint32_t>(backend_.getSize()), root};
  }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(backend_.getSize()); }
  [[nodiscard]] std::optional<double> factor_of(const c10d::ReduceOp& op) const {
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return std::nullopt;
    // The name in torch 2.11; 2.13 has dropped the prefix but accepts both.
    const auto* const supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    require(supplement != nullptr, "PREMUL_SUM comes without its factor; make it with _make_nccl_premul_sum");
    return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
  }

  SyntonyBackend& backend_;
  const char* name_;
  bool coalescing_;
  bool waits_;
  CallOptions options_;
  c10::intrusive_ptr<SyntonyWork> work_;  // null if nobody can ask for it; the buffers are then our own
  mutable Buffers own_;
  OnDevice* on_device_ = nullptr;  // set if the tensors are not on the CPU; then work_ is null, and this is the Work:
  c10::intrusive_ptr<DeviceWork> device_work_;
};

}  // namespace syntony::glue
