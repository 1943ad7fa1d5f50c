// What all calls of SyntonyBackend have in common: check the arguments, lay out blocks, start, hand out a Work.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Utils.hpp>
#include <vector>

#include "core/group/blocks.hpp"
#include "torch/request.hpp"
#include "torch/syntony_backend.hpp"

namespace syntony::glue {

using Counts = std::vector<std::size_t>;
using Blocks = std::vector<Block>;

[[nodiscard]] inline bool even(const Tensors& list) {
  return std::ranges::all_of(list, [&](const at::Tensor& tensor) { return tensor.numel() == list[0].numel(); });
}

/// One call. Its methods throw c10::Error, naming rank and operation, when an argument is wrong.
class Launch {
 public:
  /// `title` names the operation in profiles and messages: "syntony:all_reduce".
  Launch(SyntonyBackend& backend, OpType type, const char* title, const Tensors& inputs,
         std::chrono::milliseconds timeout = c10d::kUnsetTimeout, bool async = true)
      : backend_(backend), title_(title), coalescing_(backend.coalescing()), waits_(!async && !coalescing_) {
    if (timeout > std::chrono::milliseconds(0)) options_.timeout = timeout;
    if (!inputs.empty() && has_streams(inputs[0].device())) {
      move_to(inputs[0].device(), type, inputs);
      return;
    }
    options_.async = !waits_ || backend.watched();
    if (!options_.async && !at::hasCallbacks()) return;  // nobody will ask for a Work
    work_ = c10::make_intrusive<SyntonyWork>(backend.process(), backend.getRank(), type, title, inputs);
    options_.keep_alive = work_->buffers();
  }
  template <typename Options>  // c10d's options all have these two, and no base
  Launch(SyntonyBackend& backend, OpType type, const char* title, const Tensors& inputs, const Options& options)
      : Launch(backend, type, title, inputs, options.timeout, options.asyncOp) {}

  // Arguments. The texts are those that torch's own tests look for.

  template <typename... Words>
  void require(bool condition, const Words&... what) const {
    TORCH_CHECK(condition, "syntony rank ", backend_.getRank(), ": ", title_ + sizeof("syntony:") - 1, ": ", what...);
  }
  /// As c10d's own checks want it.
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
  /// The only tensor of `tensors`, dense. `role` stands in the message: "input ".
  const at::Tensor& single(const Tensors& tensors, const char* role = "") const {
    require(!tensors.empty(), "requires non-empty ", role, "tensor list");
    require(tensors.size() == 1, "requires a single-element ", role, "tensor list");
    check_dense(tensors[0]);
    return tensors[0];
  }
  /// One dense tensor per rank, of `like`'s type; of its size too if `even`, else only this rank's own.
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
  /// `whole` is as large as one `part` per rank; `what` says so.
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

  // Memory: one block per rank, in the tensors of a list, or one after the other in one tensor.

  [[nodiscard]] Buffers& buffers() const {
    if (device_work_) return *device_work_->buffers();
    return work_ ? *work_->buffers() : own_;
  }
  [[nodiscard]] Blocks inputs(const Tensors& list) const {
    Blocks blocks;
    for (const at::Tensor& tensor : list) blocks.push_back({buffers().input(tensor), nullptr, elements_of(tensor)});
    return blocks;
  }
  [[nodiscard]] Blocks outputs(const Tensors& list) const {
    Blocks blocks;
    for (const at::Tensor& tensor : list) blocks.push_back({nullptr, buffers().output(tensor), elements_of(tensor)});
    return blocks;
  }
  [[nodiscard]] Blocks inputs(const at::Tensor& whole, const Counts& counts) const {
    return consecutive(&Block::input, buffers().input(whole), counts, whole.element_size());
  }
  [[nodiscard]] Blocks outputs(const at::Tensor& whole, const Counts& counts) const {
    return consecutive(&Block::output, buffers().output(whole), counts, whole.element_size());
  }
  /// `whole` cut evenly, or by rows of its first dimension.
  [[nodiscard]] Counts parts(const at::Tensor& whole, const Rows& rows = {}) const {
    if (rows.empty()) return Counts(ranks(), elements_of(whole) / ranks());
    const std::size_t row = whole.size(0) == 0 ? 0 : elements_of(whole) / static_cast<std::size_t>(whole.size(0));
    Counts counts;
    for (const std::int64_t count : rows) counts.push_back(static_cast<std::size_t>(count) * row);
    return counts;
  }
  /// Blocks that other ranks have, each as large as `like`.
  Blocks elsewhere(const at::Tensor& like) const { return Blocks(ranks(), {.elements = elements_of(like)}); }
  /// The same blocks, and this rank's own comes from, or goes to, a tensor of its own.
  [[nodiscard]] Blocks from(const at::Tensor& own, Blocks blocks) const {
    blocks[backend_.self()].input = buffers().input(own);
    return blocks;
  }
  [[nodiscard]] Blocks into(const at::Tensor& own, Blocks blocks) const {
    blocks[backend_.self()].output = buffers().output(own);
    return blocks;
  }

  // Running.

  /// A collective that only moves data, of `like`'s type.
  void move(Collective collective, const at::Tensor& like, std::uint32_t root, Blocks blocks, bool even = true) {
    const std::optional<DType> dtype = dtype_of(like.scalar_type());
    for (Block& block : blocks) block.elements *= dtype ? 1 : like.element_size();
    run({.collective = collective,
         .type = like.scalar_type(),
         .dtype = dtype.value_or(DType::uint8),
         .root = root,
         .blocks = std::move(blocks),
         .even = even});
  }
  /// A collective that reduces.
  void reduce(Collective collective, const at::Tensor& like, const c10d::ReduceOp& op, std::uint32_t root,
              Blocks blocks, bool even = true) {
    // By c10d's ReduceOp::RedOpType; AVG and PREMUL_SUM are sums that are scaled.
    static constexpr std::array kMeanings{ReduceOp::sum, ReduceOp::sum,  ReduceOp::product,
                                          ReduceOp::min, ReduceOp::max,  ReduceOp::band,
                                          ReduceOp::bor, ReduceOp::bxor, ReduceOp::sum};
    const std::optional<DType> dtype = dtype_of(like.scalar_type());
    require(dtype.has_value(), "cannot reduce tensors of type ", like.scalar_type());
    require(op.op_ < kMeanings.size(), "unknown ReduceOp ", static_cast<int>(op.op_));
    const Scaling scaling{.average = op.op_ == c10d::ReduceOp::AVG, .factor = factor_of(op)};
    require(scaling.factor == 1.0 || like.is_floating_point() || like.is_complex(), "PREMUL_SUM needs a floating type");
    run({.collective = collective,
         .type = like.scalar_type(),
         .dtype = *dtype,
         .op = kMeanings[op.op_],
         .root = root,
         .blocks = std::move(blocks),
         .scaling = scaling,
         .weighted = op.op_ == c10d::ReduceOp::PREMUL_SUM,
         .even = even});
  }
  WorkPtr send(const Tensors& tensors, std::uint32_t destination, int tag) {
    const at::Tensor& tensor = single(tensors);
    const std::byte* const memory = buffers().input(tensor);
    if (on_device_) {
      arrives([&] {
        return on_device_->send(memory, tensor.nbytes(), destination, checked(tag), options_, device_work_->buffers());
      });
    } else {
      start([&](Communicator& group, const CallOptions& options) {
        return group.send(memory, tensor.nbytes(), destination, checked(tag), options);
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
      start([&](Communicator& group, const CallOptions& options) {
        return group.receive(memory, tensor.nbytes(), source, checked(tag), options);
      });
    }
    return finish(tensors);
  }
  /// After what the current stream of a device holds, if one is named. Torch's dispatcher hands on its number only.
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
      start([](Communicator& group, const CallOptions& call) { return group.barrier(call); });
    }
    return finish({});
  }
  /// `outputs` is the result that futures carry. Null when the call was not to be async: torch then asks no more.
  WorkPtr finish(const Tensors& outputs) {
    if (device_work_) return handed_out(device_work_, outputs);
    if (!work_) own_.copy_back();
    return handed_out(work_, outputs);
  }

 private:
  void run(Request request) {
    if (on_device_) {
      return arrives([&] { return on_device_->run(std::move(request), options_, device_work_->buffers()); });
    }
    start([&](Communicator& group, const CallOptions& options) {
      return group.run(request.collective, request.dtype, request.op, request.root, std::move(request.blocks), options,
                       request.scaling, request.even);
    });
  }
  template <typename Call>
  void start(Call&& call) {
    const auto part = in_torch_terms([&] { return call(backend_.communicator(), options_); });
    if (part) work_->add(part);
  }
  template <typename Call>
  void arrives(Call&& call) {
    device_work_->add(in_torch_terms(call));
  }
  void move_to(const at::Device& device, OpType type, const Tensors& inputs) {
    on_device_ = &backend_.on(device);
    device_work_ =
        c10::make_intrusive<DeviceWork>(backend_.process(), backend_.getRank(), type, title_, inputs, device);
  }
  template <typename W>
  WorkPtr handed_out(const c10::intrusive_ptr<W>& work, const Tensors& outputs) {
    if (work) backend_.launched(*work, outputs);
    if (coalescing_) backend_.coalesce(work);
    if (work && waits_) work->wait();
    return waits_ ? nullptr : WorkPtr(work);
  }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(backend_.getSize()); }
  [[nodiscard]] double factor_of(const c10d::ReduceOp& op) const {
    if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return 1.0;
    // The name of torch 2.11; 2.13 has dropped the prefix but knows both.
    const auto* const supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
    require(supplement != nullptr, "PREMUL_SUM comes without its factor; make it with _make_nccl_premul_sum");
    return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
  }

  SyntonyBackend& backend_;
  const char* title_;
  bool coalescing_;
  bool waits_;
  CallOptions options_;
  c10::intrusive_ptr<SyntonyWork> work_;  // null where nobody could ask for it: then the buffers are our own
  mutable Buffers own_;
  OnDevice* on_device_ = nullptr;  // the tensors are not on the CPU; then work_ is null, and this is the Work:
  c10::intrusive_ptr<DeviceWork> device_work_;
};

}  // namespace syntony::glue
