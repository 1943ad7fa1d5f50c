#include "torch/launch.hpp"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "torch/errors.hpp"

namespace syntony::glue {
namespace {

struct Reduction {
  ReduceOp op = ReduceOp::sum;
  Scaling scaling;
};

double factor_of(const c10d::ReduceOp& op) {
  // The name of torch 2.11; 2.13 has dropped the prefix but knows both.
  const auto* const supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement != nullptr,
              "syntony: PREMUL_SUM comes without its factor; make it with _make_nccl_premul_sum");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return {ReduceOp::sum, {}};
    case c10d::ReduceOp::AVG:
      return {ReduceOp::sum, {.average = true, .factor = 1.0}};
    case c10d::ReduceOp::PREMUL_SUM:
      return {ReduceOp::sum, {.average = false, .factor = factor_of(op)}};
    case c10d::ReduceOp::PRODUCT:
      return {ReduceOp::product, {}};
    case c10d::ReduceOp::MIN:
      return {ReduceOp::min, {}};
    case c10d::ReduceOp::MAX:
      return {ReduceOp::max, {}};
    case c10d::ReduceOp::BAND:
      return {ReduceOp::band, {}};
    case c10d::ReduceOp::BOR:
      return {ReduceOp::bor, {}};
    case c10d::ReduceOp::BXOR:
      return {ReduceOp::bxor, {}};
    default:
      TORCH_CHECK(false, "syntony: unknown ReduceOp ", static_cast<int>(op.op_));
  }
}

}  // namespace

SyntonyBackend::Launch::Launch(SyntonyBackend& backend, c10d::OpType type, const char* title, const Tensors& inputs,
                               std::chrono::milliseconds timeout, bool async)
    : backend_(backend), title_(title), coalescing_(backend.coalescing()) {
  if (timeout > std::chrono::milliseconds(0)) options_.timeout = timeout;
  options_.async = async || coalescing_;
  work_ = c10::make_intrusive<SyntonyWork>(backend.process_, backend.rank_, type, title, inputs);
  if (options_.async) options_.keep_alive = work_->buffers();
}

// ---- arguments ------------------------------------------------------------------------------------------------------

void SyntonyBackend::Launch::require(bool condition, const std::string& what) const {
  TORCH_CHECK(condition, "syntony rank ", backend_.rank_, ": ", title_ + sizeof("syntony:") - 1, ": ", what);
}

std::function<void(const std::string&)> SyntonyBackend::Launch::failing() const {
  return [this](const std::string& what) { require(false, what); };
}

void SyntonyBackend::Launch::check_dense(const at::Tensor& tensor) const {
  require(tensor.layout() == at::kStrided, "only supports dense tensors (invalid tensor layout)");
  require(tensor.is_cpu(), "only supports CPU tensors, got one on " + tensor.device().str());
}

const at::Tensor& SyntonyBackend::Launch::single(const Tensors& tensors, const char* role) const {
  require(!tensors.empty(), std::string("requires non-empty ") + role + "tensor list");
  require(tensors.size() == 1, std::string("requires a single-element ") + role + "tensor list");
  check_dense(tensors[0]);
  return tensors[0];
}

void SyntonyBackend::Launch::check_list(const Tensors& tensors, const at::Tensor& like, bool even) const {
  require(tensors.size() == ranks(), c10::str("Incorrect list size ", tensors.size(), ". List size should be ", ranks(),
                                              ", same as size of the process group."));
  for (std::size_t i = 0; i < ranks(); ++i) {
    check_dense(tensors[i]);
    require(tensors[i].scalar_type() == like.scalar_type(),
            c10::str("invalid tensor type at index ", i, " (expected ", like.scalar_type(), ", got ",
                     tensors[i].scalar_type(), ")"));
    require((!even && i != static_cast<std::size_t>(backend_.rank_)) || tensors[i].numel() == like.numel(),
            c10::str("invalid tensor size at index ", i, " (expected ", like.numel(), " elements, got ",
                     tensors[i].numel(), ")"));
  }
}

const Tensors& SyntonyBackend::Launch::single_list(const std::vector<Tensors>& lists, const at::Tensor& like,
                                                   bool even) const {
  require(lists.size() == 1, c10::str("requires a single-element list containing a list with ", ranks(), " tensors"));
  check_list(lists[0], like, even);
  return lists[0];
}

void SyntonyBackend::Launch::check_parts(const Tensors& wholes, const Tensors& parts, const char* what) const {
  c10d::assertInputOutputTensorListsSameSize(failing(), wholes.size(), parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_dense(parts[i]);
    check_dense(wholes[i]);
    require(wholes[i].scalar_type() == parts[i].scalar_type(),
            c10::str("output tensor must have the same type as input tensor, not ", wholes[i].scalar_type(), " and ",
                     parts[i].scalar_type()));
    require(wholes[i].numel() == parts[i].numel() * backend_.size_,
            c10::str(what, " (", wholes[i].numel(), " against ", ranks(), " x ", parts[i].numel(), " elements)"));
  }
}

std::uint32_t SyntonyBackend::Launch::peer(std::int64_t rank, const char* what) const {
  require(rank >= 0 && rank < backend_.size_, c10::str("invalid ", what, ": ", rank, " in a group of ", ranks()));
  return static_cast<std::uint32_t>(rank);
}

std::uint64_t SyntonyBackend::Launch::wire_tag(int tag) const {
  require(tag >= 0, c10::str("invalid tag: ", tag, "; tags are not negative"));
  return static_cast<std::uint64_t>(tag);
}

// ---- memory ---------------------------------------------------------------------------------------------------------

std::vector<Block> SyntonyBackend::Launch::inputs(const Tensors& list) const {
  std::vector<Block> blocks;
  for (const at::Tensor& tensor : list) {
    blocks.push_back({buffers().input(tensor), nullptr, static_cast<std::size_t>(tensor.numel())});
  }
  return blocks;
}

std::vector<Block> SyntonyBackend::Launch::outputs(const Tensors& list) const {
  std::vector<Block> blocks;
  for (const at::Tensor& tensor : list) {
    blocks.push_back({nullptr, buffers().output(tensor), static_cast<std::size_t>(tensor.numel())});
  }
  return blocks;
}

std::vector<Block> SyntonyBackend::Launch::inputs(const at::Tensor& whole) const {
  const std::byte* memory = buffers().input(whole);
  std::vector<Block> blocks(ranks(), {nullptr, nullptr, static_cast<std::size_t>(whole.numel()) / ranks()});
  for (Block& block : blocks) block.input = std::exchange(memory, memory + whole.nbytes() / ranks());
  return blocks;
}

std::vector<Block> SyntonyBackend::Launch::outputs(const at::Tensor& whole) const {
  std::byte* memory = buffers().output(whole);
  std::vector<Block> blocks(ranks(), {nullptr, nullptr, static_cast<std::size_t>(whole.numel()) / ranks()});
  for (Block& block : blocks) block.output = std::exchange(memory, memory + whole.nbytes() / ranks());
  return blocks;
}

std::vector<Block> SyntonyBackend::Launch::nowhere(const at::Tensor& like) const {
  return std::vector<Block>(ranks(), {nullptr, nullptr, static_cast<std::size_t>(like.numel())});
}

// ---- running --------------------------------------------------------------------------------------------------------

void SyntonyBackend::Launch::run(Collective collective, DType dtype, ReduceOp op, std::uint32_t root,
                                 std::vector<Block> blocks, const Scaling& scaling, bool even) {
  buffers().separate(blocks, size_of(dtype));
  // What a rank knows of uneven sizes is its own row and column: too little for Programs that relay.
  if (collective == Collective::all_to_all && !even) options_.algorithm = "direct";
  in_torch_terms([&] {
    work_->add(backend_.communicator().run(collective, dtype, op, root, std::move(blocks), options_, scaling, even));
  });
}

void SyntonyBackend::Launch::move(Collective collective, at::ScalarType type, std::uint32_t root,
                                  std::vector<Block> blocks, bool even) {
  const std::optional<DType> dtype = dtype_of(type);
  if (!dtype) {
    for (Block& block : blocks) block.elements *= c10::elementSize(type);
  }
  run(collective, dtype.value_or(DType::uint8), ReduceOp::sum, root, std::move(blocks), {}, even);
}

void SyntonyBackend::Launch::reduce(Collective collective, const at::Tensor& like, const c10d::ReduceOp& op,
                                    std::uint32_t root, std::vector<Block> blocks, bool even) {
  const std::optional<DType> dtype = dtype_of(like.scalar_type());
  require(dtype.has_value(), c10::str("cannot reduce tensors of type ", like.scalar_type()));
  const auto [meaning, scaling] = reduction_of(op);
  require(scaling.factor == 1.0 || like.is_floating_point() || like.is_complex(), "PREMUL_SUM needs a floating type");
  require(!scaling.average || like.scalar_type() != at::kBool, "the average of bools has no meaning");
  run(collective, *dtype, meaning, root, std::move(blocks), scaling, even);
}

void SyntonyBackend::Launch::barrier() {
  in_torch_terms([&] { work_->add(backend_.communicator().barrier(options_)); });
}

void SyntonyBackend::Launch::send(const at::Tensor& tensor, int destination, int tag) {
  const std::uint32_t to = peer(destination, "destination rank");
  in_torch_terms([&] {
    work_->add(backend_.communicator().send(buffers().input(tensor), tensor.nbytes(), to, wire_tag(tag), options_));
  });
}

void SyntonyBackend::Launch::receive(const at::Tensor& tensor, int source, int tag) {
  in_torch_terms([&] {
    work_->add(
        backend_.communicator().receive(buffers().output(tensor), tensor.nbytes(), source, wire_tag(tag), options_));
  });
}

WorkPtr SyntonyBackend::Launch::finish(Tensors outputs) {
  work_->launched(std::move(outputs));
  if (coalescing_) {
    const std::scoped_lock lock(backend_.coalescing_mutex_);
    if (backend_.coalesced_) backend_.coalesced_->push_back(work_);
  }
  return work_;
}

}  // namespace syntony::glue
