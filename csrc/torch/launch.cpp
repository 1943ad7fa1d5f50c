#include "torch/launch.hpp"

#include <ATen/ATen.h>

#include <array>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "core/runtime/blocks.hpp"

namespace syntony::glue {
namespace {

/// By c10d's ReduceOp::RedOpType; AVG and PREMUL_SUM are sums that are scaled.
constexpr std::array kMeanings{ReduceOp::sum,  ReduceOp::sum, ReduceOp::product, ReduceOp::min, ReduceOp::max,
                               ReduceOp::band, ReduceOp::bor, ReduceOp::bxor,    ReduceOp::sum};

double factor_of(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return 1.0;
  // The name of torch 2.11; 2.13 has dropped the prefix but knows both.
  const auto* const supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr,
              "syntony: PREMUL_SUM comes without its factor; make it with _make_nccl_premul_sum");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

}  // namespace

Launch::Launch(SyntonyBackend& backend, c10d::OpType type, const char* title, const Tensors& inputs,
               std::chrono::milliseconds timeout, bool async)
    : backend_(backend), title_(title), coalescing_(backend.coalescing()) {
  if (timeout > std::chrono::milliseconds(0)) options_.timeout = timeout;
  options_.async = async || coalescing_;
  work_ = c10::make_intrusive<SyntonyWork>(backend.process(), backend.getRank(), type, title, inputs);
  if (options_.async) options_.keep_alive = work_->buffers();
}

// ---- arguments ------------------------------------------------------------------------------------------------------

std::function<void(const std::string&)> Launch::failing() const {
  return [this](const std::string& what) { require(false, what); };
}

void Launch::check_dense(const at::Tensor& tensor) const {
  require(tensor.layout() == at::kStrided, "only supports dense tensors (invalid tensor layout)");
  require(tensor.is_cpu(), "only supports CPU tensors, got one on ", tensor.device());
}

const at::Tensor& Launch::single(const Tensors& tensors, const char* role) const {
  require(!tensors.empty(), "requires non-empty ", role, "tensor list");
  require(tensors.size() == 1, "requires a single-element ", role, "tensor list");
  check_dense(tensors[0]);
  return tensors[0];
}

void Launch::check_list(const Tensors& tensors, const at::Tensor& like, bool even) const {
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

const Tensors& Launch::single_list(const std::vector<Tensors>& lists, const at::Tensor& like, bool even) const {
  require(lists.size() == 1, "requires a single-element list containing a list with ", ranks(), " tensors");
  check_list(lists[0], like, even);
  return lists[0];
}

void Launch::check_parts(const at::Tensor& whole, const at::Tensor& part, const char* what) const {
  check_dense(part);
  check_dense(whole);
  require(whole.scalar_type() == part.scalar_type(), "output tensor must have the same type as input tensor, not ",
          whole.scalar_type(), " and ", part.scalar_type());
  require(whole.numel() == part.numel() * backend_.getSize(), what, " (", whole.numel(), " against ", ranks(), " x ",
          part.numel(), " elements)");
}

std::uint32_t Launch::peer(std::int64_t rank, const char* what) const {
  require(rank >= 0 && rank < backend_.getSize(), "invalid ", what, ": ", rank, " in a group of ", ranks());
  return static_cast<std::uint32_t>(rank);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

std::vector<Block> Launch::inputs(const Tensors& list) const {
  std::vector<Block> blocks;
  for (const at::Tensor& tensor : list) blocks.push_back({buffers().input(tensor), nullptr, elements_of(tensor)});
  return blocks;
}

std::vector<Block> Launch::outputs(const Tensors& list) const {
  std::vector<Block> blocks;
  for (const at::Tensor& tensor : list) blocks.push_back({nullptr, buffers().output(tensor), elements_of(tensor)});
  return blocks;
}

std::vector<Block> Launch::inputs(const at::Tensor& whole, const Counts& counts) const {
  return consecutive(&Block::input, buffers().input(whole), counts, whole.element_size());
}

std::vector<Block> Launch::outputs(const at::Tensor& whole, const Counts& counts) const {
  return consecutive(&Block::output, buffers().output(whole), counts, whole.element_size());
}

Counts Launch::parts(const at::Tensor& whole, const std::vector<std::int64_t>& rows) const {
  if (rows.empty()) return Counts(ranks(), elements_of(whole) / ranks());
  const std::size_t row = whole.size(0) == 0 ? 0 : elements_of(whole) / static_cast<std::size_t>(whole.size(0));
  Counts counts;
  for (const std::int64_t count : rows) counts.push_back(static_cast<std::size_t>(count) * row);
  return counts;
}

std::vector<Block> Launch::nowhere(const at::Tensor& like) const {
  return std::vector<Block>(ranks(), {nullptr, nullptr, elements_of(like)});
}

// ---- running --------------------------------------------------------------------------------------------------------

void Launch::move(Collective collective, at::ScalarType type, std::uint32_t root, std::vector<Block> blocks,
                  bool even) {
  const std::optional<DType> dtype = dtype_of(type);
  for (Block& block : blocks) block.elements *= dtype ? 1 : c10::elementSize(type);
  start([&](Communicator& group, const CallOptions& options) {
    return group.run(collective, dtype.value_or(DType::uint8), ReduceOp::sum, root, std::move(blocks), options, {},
                     even);
  });
}

void Launch::reduce(Collective collective, const at::Tensor& like, const c10d::ReduceOp& op, std::uint32_t root,
                    std::vector<Block> blocks, bool even) {
  const std::optional<DType> dtype = dtype_of(like.scalar_type());
  require(dtype.has_value(), "cannot reduce tensors of type ", like.scalar_type());
  require(op.op_ < kMeanings.size(), "unknown ReduceOp ", static_cast<int>(op.op_));
  const Scaling scaling{.average = op.op_ == c10d::ReduceOp::AVG, .factor = factor_of(op)};
  require(scaling.factor == 1.0 || like.is_floating_point() || like.is_complex(), "PREMUL_SUM needs a floating type");
  start([&](Communicator& group, const CallOptions& options) {
    return group.run(collective, *dtype, kMeanings[op.op_], root, std::move(blocks), options, scaling, even);
  });
}

WorkPtr Launch::finish(Tensors outputs) {
  work_->launched(std::move(outputs));
  if (coalescing_) backend_.coalesce(work_);
  return work_;
}

}  // namespace syntony::glue
