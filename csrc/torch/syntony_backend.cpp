#include "torch/syntony_backend.hpp"

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "core/runtime/blocks.hpp"
#include "torch/launch.hpp"

namespace syntony::glue {

using c10d::OpType;

namespace {

bool all_even(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& tensor) { return tensor.numel() == tensors.front().numel(); });
}

}  // namespace

// ---- one tensor per rank --------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Launch launch(*this, OpType::BROADCAST, "syntony:broadcast", tensors, options);
  const std::uint32_t root = launch.peer(options.rootRank);
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
  const std::uint32_t root = launch.peer(options.rootRank);
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
  const std::uint32_t root = launch.peer(options.rootRank);
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
  const std::uint32_t root = launch.peer(options.rootRank);
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
  c10d::assertInputOutputTensorListsSameSize(launch.failing(), outputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    launch.check_parts(outputs[i], inputs[i], "output tensor size must be equal to world_size times input tensor size");
    std::vector<Block> blocks = launch.outputs(outputs[i], launch.parts(outputs[i]));
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
  c10d::assertInputOutputTensorListsSameSize(launch.failing(), outputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    launch.check_parts(inputs[i], outputs[i], "input tensor must be the same size as output size times world size");
    std::vector<Block> blocks = launch.inputs(inputs[i], launch.parts(inputs[i]));
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
  const Counts sent = launch.parts(input, input_splits), received = launch.parts(output, output_splits);
  launch.require(sent[self()] == received[self()], "this rank sends itself ", sent[self()], " elements but expects ",
                 received[self()]);
  launch.move(Collective::all_to_all, input.scalar_type(), 0,
              exchanged(launch.inputs(input, sent), launch.outputs(output, received), self()), even);
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
