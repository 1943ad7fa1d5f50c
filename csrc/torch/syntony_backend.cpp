#include "torch/syntony_backend.hpp"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "torch/errors.hpp"
#include "torch/launch.hpp"

namespace syntony::glue {

using c10d::OpType;

namespace {

std::size_t elements_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

bool all_even(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == tensors.front().numel(); });
}

/// Cuts the same memory by rows of dim 0 instead of evenly.
template <typename Byte>
void resplit(std::vector<Block>& blocks, Byte* Block::* end, const at::Tensor& tensor,
             const std::vector<std::int64_t>& rows) {
  Byte* memory = blocks[0].*end;
  const std::size_t row = tensor.size(0) == 0 ? 0 : elements_of(tensor) / static_cast<std::size_t>(tensor.size(0));
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    blocks[rank].elements = static_cast<std::size_t>(rows[rank]) * row;
    blocks[rank].*end = std::exchange(memory, memory + blocks[rank].elements * tensor.element_size());
  }
}

/// all_to_all's blocks: index s * n + d; this rank's row is what it sends, its column what it receives. The others' are
/// as large as its own first, which is right when all are even, and does not matter when they are not.
std::vector<Block> exchanged(const std::vector<Block>& sent, const std::vector<Block>& received, std::size_t self) {
  const std::size_t ranks = sent.size();
  std::vector<Block> blocks(ranks * ranks, {nullptr, nullptr, sent[0].elements});
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    blocks[self * ranks + peer] = sent[peer];
    if (peer != self) blocks[peer * ranks + self] = received[peer];
  }
  blocks[self * ranks + self].output = received[self].output;
  return blocks;
}

}  // namespace

// ---- one tensor per rank --------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Launch launch(*this, OpType::BROADCAST, "syntony:broadcast", tensors, options);
  const std::uint32_t root = launch.peer(options.rootRank, "root rank");
  const at::Tensor& tensor = launch.single(tensors);
  c10d::assertRootTensor(launch.failing(), options.rootTensor, 1);
  Block block = launch.buffers().in_place(tensor);
  if (static_cast<int>(root) != rank_) block.input = nullptr;
  launch.move(Collective::broadcast, tensor.scalar_type(), root, {block});
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  Launch launch(*this, OpType::ALLREDUCE, "syntony:all_reduce", tensors, options);
  const at::Tensor& tensor = launch.single(tensors);
  launch.reduce(Collective::all_reduce, tensor, options.reduceOp, 0, {launch.buffers().in_place(tensor)});
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Launch launch(*this, OpType::ALLREDUCE_COALESCED, "syntony:all_reduce", tensors, options);
  c10d::assertNonEmpty(launch.failing(), tensors);
  for (const at::Tensor& tensor : tensors) launch.check_dense(tensor);
  for (const at::Tensor& tensor : tensors) {
    launch.reduce(Collective::all_reduce, tensor, options.reduceOp, 0, {launch.buffers().in_place(tensor)});
  }
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Launch launch(*this, OpType::REDUCE, "syntony:reduce", tensors, options);
  const std::uint32_t root = launch.peer(options.rootRank, "root rank");
  const at::Tensor& tensor = launch.single(tensors);
  c10d::assertRootTensor(launch.failing(), options.rootTensor, 1);
  const Block block = static_cast<int>(root) == rank_
                          ? launch.buffers().in_place(tensor)
                          : Block{launch.buffers().input(tensor), nullptr, elements_of(tensor)};
  launch.reduce(Collective::reduce, tensor, options.reduceOp, root, {block});
  return launch.finish(tensors);
}

// ---- one tensor, one list -------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) {
  Launch launch(*this, OpType::ALLGATHER, "syntony:all_gather", inputs, options);
  const at::Tensor& input = launch.single(inputs, "input ");
  c10d::assertInputOutputTensorListsSameSize(launch.failing(), outputs.size(), inputs.size());
  const Tensors& list = launch.single_list(outputs, input, false);
  std::vector<Block> blocks = launch.outputs(list);
  blocks[self()].input = launch.buffers().input(input);
  launch.move(Collective::all_gather, input.scalar_type(), 0, std::move(blocks), all_even(list));
  return launch.finish(list);
}

WorkPtr SyntonyBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                            const c10d::AllgatherOptions& options) {
  Launch launch(*this, OpType::ALLGATHER_COALESCED, "syntony:all_gather", inputs, options);
  c10d::assertNonEmptyInputTensorList(launch.failing(), inputs.size());
  c10d::assertAllgatherCoalescedOutputTensorLists(launch.failing(), outputs, inputs.size(), size_);
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
    launch.check_dense(inputs[i]);
    launch.check_list(list, inputs[i], true);
    std::vector<Block> blocks = launch.outputs(list);
    blocks[self()].input = launch.buffers().input(inputs[i]);
    launch.move(Collective::all_gather, inputs[i].scalar_type(), 0, std::move(blocks));
    result.insert(result.end(), list.begin(), list.end());
  }
  return launch.finish(std::move(result));
}

WorkPtr SyntonyBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  Launch launch(*this, OpType::GATHER, "syntony:gather", inputs, options);
  const std::uint32_t root = launch.peer(options.rootRank, "root rank");
  const at::Tensor& input = launch.single(inputs, "input ");
  const bool at_root = static_cast<int>(root) == rank_;
  if (!at_root) c10d::assertEmptyOutputTensorList(launch.failing(), outputs);
  const Tensors gathered = at_root ? launch.single_list(outputs, input, true) : Tensors();
  std::vector<Block> blocks = at_root ? launch.outputs(gathered) : launch.nowhere(input);
  blocks[self()].input = launch.buffers().input(input);
  launch.move(Collective::gather, input.scalar_type(), root, std::move(blocks));
  return launch.finish(gathered);
}

WorkPtr SyntonyBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  Launch launch(*this, OpType::SCATTER, "syntony:scatter", inputs.empty() ? Tensors() : inputs[0], options);
  const std::uint32_t root = launch.peer(options.rootRank, "root rank");
  const at::Tensor& output = launch.single(outputs, "output ");
  const bool at_root = static_cast<int>(root) == rank_;
  if (!at_root) c10d::assertEmptyInputTensorList(launch.failing(), inputs);
  std::vector<Block> blocks =
      at_root ? launch.inputs(launch.single_list(inputs, output, true)) : launch.nowhere(output);
  blocks[self()].output = launch.buffers().output(output);
  launch.move(Collective::scatter, output.scalar_type(), root, std::move(blocks));
  return launch.finish(outputs);
}

WorkPtr SyntonyBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                       const c10d::ReduceScatterOptions& options) {
  Launch launch(*this, OpType::REDUCE_SCATTER, "syntony:reduce_scatter", inputs.empty() ? Tensors() : inputs[0],
                options);
  const at::Tensor& output = launch.single(outputs, "output ");
  const Tensors& list = launch.single_list(inputs, output, false);
  std::vector<Block> blocks = launch.inputs(list);
  blocks[self()].output = launch.buffers().output(output);
  launch.reduce(Collective::reduce_scatter, output, options.reduceOp, 0, std::move(blocks), all_even(list));
  return launch.finish(outputs);
}

WorkPtr SyntonyBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  Launch launch(*this, OpType::ALLTOALL, "syntony:all_to_all", inputs, options);
  c10d::assertAllToAllTensorListSizes(launch.failing(), outputs.size(), inputs.size(), size_);
  launch.check_list(inputs, outputs[self()], false);
  launch.check_list(outputs, inputs[self()], false);
  launch.move(Collective::all_to_all, inputs[0].scalar_type(), 0,
              exchanged(launch.inputs(inputs), launch.outputs(outputs), self()), false);
  return launch.finish(outputs);
}

// ---- one flat tensor of all blocks ----------------------------------------------------------------------------------

WorkPtr SyntonyBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

WorkPtr SyntonyBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::AllgatherOptions& options) {
  Launch launch(*this, OpType::_ALLGATHER_BASE, "syntony:_all_gather_base", inputs, options);
  launch.check_parts(outputs, inputs, "output tensor size must be equal to world_size times input tensor size");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Block> blocks = launch.outputs(outputs[i]);
    blocks[self()].input = launch.buffers().input(inputs[i]);
    launch.move(Collective::all_gather, inputs[i].scalar_type(), 0, std::move(blocks));
  }
  return launch.finish(outputs);
}

WorkPtr SyntonyBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                             const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

WorkPtr SyntonyBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const c10d::ReduceScatterOptions& options) {
  Launch launch(*this, OpType::_REDUCE_SCATTER_BASE, "syntony:_reduce_scatter_base", inputs, options);
  launch.check_parts(inputs, outputs, "input tensor must be the same size as output size times world size");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Block> blocks = launch.inputs(inputs[i]);
    blocks[self()].output = launch.buffers().output(outputs[i]);
    launch.reduce(Collective::reduce_scatter, outputs[i], options.reduceOp, 0, std::move(blocks));
  }
  return launch.finish(outputs);
}

WorkPtr SyntonyBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                      std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  Launch launch(*this, OpType::ALLTOALL_BASE, "syntony:all_to_all", {input}, options);
  launch.check_dense(input);
  launch.check_dense(output);
  const bool even = input_splits.empty() && output_splits.empty();
  launch.require(output.scalar_type() == input.scalar_type(), "output tensor must have the same type as input tensor");
  launch.require(!even || output.numel() == input.numel(),
                 "without split sizes output and input must be equally large");
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  std::vector<Block> sent = launch.inputs(input), received = launch.outputs(output);
  if (!input_splits.empty()) resplit(sent, &Block::input, input, input_splits);
  if (!output_splits.empty()) resplit(received, &Block::output, output, output_splits);
  launch.require(
      sent[self()].elements == received[self()].elements,
      c10::str("this rank sends itself ", sent[self()].elements, " elements but expects ", received[self()].elements));
  launch.move(Collective::all_to_all, input.scalar_type(), 0, exchanged(sent, received, self()), even);
  return launch.finish({output});
}

// ---- sparse ---------------------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  // Three gathers and a local sum: how many entries each rank has, then where, then what. They are waited for here; a
  // sparse gradient is small beside the dense ones.
  Launch launch(*this, OpType::_ALLREDUCE_SPARSE, "syntony:all_reduce", tensors, options);
  launch.require(tensors.size() == 1, "requires a single-element tensor list");
  launch.require(tensors[0].is_sparse(), "requires a sparse (COO) tensor");
  launch.require(options.reduceOp.op_ == c10d::ReduceOp::SUM,
                 "unsupported reduction operation: sparse tensors only sum");
  const at::Tensor mine = tensors[0].coalesce();
  c10d::AllgatherOptions gather;
  gather.timeout = options.timeout;
  gather.asyncOp = false;
  const auto gathered = [&](const at::Tensor& tensor, const std::vector<std::int64_t>& rows) {
    std::vector<Tensors> lists(1);
    for (const std::int64_t count : rows) {
      std::vector<std::int64_t> shape = tensor.sizes().vec();
      shape[0] = count;
      lists[0].push_back(at::empty(shape, tensor.options()));
    }
    Tensors inputs{tensor};
    allgather(lists, inputs, gather)->wait();
    return at::cat(lists[0]);
  };
  const at::Tensor counts =
      gathered(at::full({1}, mine._nnz(), at::kLong), std::vector<std::int64_t>(static_cast<std::size_t>(size_), 1));
  const std::vector<std::int64_t> rows(counts.const_data_ptr<std::int64_t>(),
                                       counts.const_data_ptr<std::int64_t>() + counts.numel());
  const at::Tensor indices = gathered(mine._indices().t().contiguous(), rows).t();
  const at::Tensor values = gathered(mine._values(), rows);
  tensors[0].copy_(at::sparse_coo_tensor(indices, values, mine.sizes(), mine.options()).coalesce());
  return launch.finish(tensors);
}

}  // namespace syntony::glue
