#include "torch/syntony_backend.hpp"

#include <numeric>

#include "torch/launch.hpp"

namespace syntony::glue {

// ---- one tensor per rank --------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::broadcast(Tensors& tensors, const BroadcastOptions& options) {
  Launch launch(*this, OpType::BROADCAST, "syntony:broadcast", tensors, options);
  const std::uint32_t root = launch.peer(options.rootRank);
  const at::Tensor& tensor = launch.single(tensors);
  c10d::assertRootTensor(launch.failing(), options.rootTensor, 1);
  Block block = launch.buffers().in_place(tensor);
  if (!launch.is_here(root)) block.input = nullptr;
  launch.move(Collective::broadcast, tensor, root, {block});
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::allreduce(Tensors& tensors, const AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  Launch launch(*this, OpType::ALLREDUCE, "syntony:all_reduce", tensors, options);
  const at::Tensor& tensor = launch.single(tensors);
  launch.reduce(Collective::all_reduce, tensor, options.reduceOp, 0, {launch.buffers().in_place(tensor)});
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::allreduce_coalesced(Tensors& tensors, const AllreduceCoalescedOptions& options) {
  Launch launch(*this, OpType::ALLREDUCE_COALESCED, "syntony:all_reduce", tensors, options);
  c10d::assertNonEmpty(launch.failing(), tensors);
  for (const at::Tensor& tensor : tensors) launch.check_dense(tensor);
  for (const at::Tensor& tensor : tensors) {
    launch.reduce(Collective::all_reduce, tensor, options.reduceOp, 0, {launch.buffers().in_place(tensor)});
  }
  return launch.finish(tensors);
}

WorkPtr SyntonyBackend::reduce(Tensors& tensors, const ReduceOptions& options) {
  Launch launch(*this, OpType::REDUCE, "syntony:reduce", tensors, options);
  const std::uint32_t root = launch.peer(options.rootRank);
  const at::Tensor& tensor = launch.single(tensors);
  c10d::assertRootTensor(launch.failing(), options.rootTensor, 1);
  const Block block = launch.is_here(root) ? launch.buffers().in_place(tensor)
                                           : Block{launch.buffers().input(tensor), nullptr, elements_of(tensor)};
  launch.reduce(Collective::reduce, tensor, options.reduceOp, root, {block});
  return launch.finish(tensors);
}

// ---- one tensor, one list -------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::allgather(Lists& outputs, Tensors& inputs, const AllgatherOptions& options) {
  Launch launch(*this, OpType::ALLGATHER, "syntony:all_gather", inputs, options);
  const at::Tensor& input = launch.single(inputs, "input ");
  launch.check_pairs(outputs.size(), inputs.size());
  const Tensors& list = launch.single_list(outputs, input, false);
  launch.move(Collective::all_gather, input, 0, launch.from(input, launch.outputs(list)), even(list));
  return launch.finish(list);
}

WorkPtr SyntonyBackend::allgather_coalesced(Lists& outputs, Tensors& inputs, const AllgatherOptions& options) {
  Launch launch(*this, OpType::ALLGATHER_COALESCED, "syntony:all_gather", inputs, options);
  launch.require(!inputs.empty(), "requires non-empty input tensor list");
  launch.require(outputs.size() == static_cast<std::size_t>(size_), "output lists should be equal to world size");
  for (const Tensors& of_rank : outputs) {
    launch.require(of_rank.size() == inputs.size(), "invalid output size: (expected length ", inputs.size(), ", got ",
                   of_rank.size(), ")");
  }
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
    launch.check_dense(inputs[i]);
    launch.check_list(list, inputs[i], true);
    launch.move(Collective::all_gather, inputs[i], 0, launch.from(inputs[i], launch.outputs(list)));
    result.insert(result.end(), list.begin(), list.end());
  }
  return launch.finish(result);
}

WorkPtr SyntonyBackend::gather(Lists& outputs, Tensors& inputs, const GatherOptions& options) {
  Launch launch(*this, OpType::GATHER, "syntony:gather", inputs, options);
  const std::uint32_t root = launch.peer(options.rootRank);
  const at::Tensor& input = launch.single(inputs, "input ");
  const bool here = launch.is_here(root);
  launch.require(here || outputs.empty(), "requires empty output on non-root");
  const Tensors gathered = here ? launch.single_list(outputs, input, true) : Tensors();
  launch.move(Collective::gather, input, root,
              launch.from(input, here ? launch.outputs(gathered) : launch.elsewhere(input)));
  return launch.finish(gathered);
}

WorkPtr SyntonyBackend::scatter(Tensors& outputs, Lists& inputs, const ScatterOptions& options) {
  Launch launch(*this, OpType::SCATTER, "syntony:scatter", inputs.empty() ? outputs : inputs[0], options);
  const std::uint32_t root = launch.peer(options.rootRank);
  const at::Tensor& output = launch.single(outputs, "output ");
  const bool here = launch.is_here(root);
  launch.require(here || inputs.empty(), "requires empty input on non-root");
  launch.move(
      Collective::scatter, output, root,
      launch.into(output, here ? launch.inputs(launch.single_list(inputs, output, true)) : launch.elsewhere(output)));
  return launch.finish(outputs);
}

WorkPtr SyntonyBackend::reduce_scatter(Tensors& outputs, Lists& inputs, const ReduceScatterOptions& options) {
  Launch launch(*this, OpType::REDUCE_SCATTER, "syntony:reduce_scatter", inputs.empty() ? outputs : inputs[0], options);
  const at::Tensor& output = launch.single(outputs, "output ");
  const Tensors& list = launch.single_list(inputs, output, false);
  launch.reduce(Collective::reduce_scatter, output, options.reduceOp, 0, launch.into(output, launch.inputs(list)),
                even(list));
  return launch.finish(outputs);
}

WorkPtr SyntonyBackend::alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) {
  Launch launch(*this, OpType::ALLTOALL, "syntony:all_to_all", inputs, options);
  const auto ranks = static_cast<std::size_t>(size_);
  launch.require(inputs.size() == ranks, "input tensor list size ", inputs.size(), " does not match world size ",
                 ranks);
  launch.require(outputs.size() == ranks, "output tensor list size ", outputs.size(), " does not match world size ",
                 ranks);
  launch.check_list(inputs, outputs[self()], false);
  launch.check_list(outputs, inputs[self()], false);
  launch.move(Collective::all_to_all, inputs[0], 0, exchanged(launch.inputs(inputs), launch.outputs(outputs), self()),
              false);
  return launch.finish(outputs);
}

// ---- one flat tensor of all blocks ----------------------------------------------------------------------------------

WorkPtr SyntonyBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const AllgatherOptions& options) {
  Launch launch(*this, OpType::_ALLGATHER_BASE, "syntony:_all_gather_base", inputs, options);
  launch.check_pairs(outputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    launch.check_parts(outputs[i], inputs[i], "output tensor size must be equal to world_size times input tensor size");
    launch.move(Collective::all_gather, inputs[i], 0,
                launch.from(inputs[i], launch.outputs(outputs[i], launch.parts(outputs[i]))));
  }
  return launch.finish(outputs);
}

WorkPtr SyntonyBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const ReduceScatterOptions& options) {
  Launch launch(*this, OpType::_REDUCE_SCATTER_BASE, "syntony:_reduce_scatter_base", inputs, options);
  launch.check_pairs(outputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    launch.check_parts(inputs[i], outputs[i], "input tensor must be the same size as output size times world size");
    launch.reduce(Collective::reduce_scatter, outputs[i], options.reduceOp, 0,
                  launch.into(outputs[i], launch.inputs(inputs[i], launch.parts(inputs[i]))));
  }
  return launch.finish(outputs);
}

WorkPtr SyntonyBackend::alltoall_base(at::Tensor& output, at::Tensor& input, Rows& output_splits, Rows& input_splits,
                                      const AllToAllOptions& options) {
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
  launch.move(Collective::all_to_all, input, 0,
              exchanged(launch.inputs(input, sent), launch.outputs(output, received), self()), even);
  return launch.finish({output});
}

// ---- sparse ---------------------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::allreduce_sparse(Tensors& tensors, const AllreduceOptions& options) {
  // Three gathers and a local sum: how many entries each rank has, then where, then what. They are waited for here; a
  // sparse gradient is small beside the dense ones.
  Launch launch(*this, OpType::_ALLREDUCE_SPARSE, "syntony:all_reduce", tensors, options);
  launch.require(tensors.size() == 1, "requires a single-element tensor list");
  launch.require(tensors[0].is_sparse(), "requires a sparse (COO) tensor");
  launch.require(options.reduceOp.op_ == c10d::ReduceOp::SUM,
                 "unsupported reduction operation: sparse tensors only sum");
  const at::Tensor mine = tensors[0].coalesce();
  const auto gathered = [&](const at::Tensor& tensor, const Rows& rows) {
    Rows shape = tensor.sizes().vec();
    shape[0] = std::reduce(rows.begin(), rows.end());
    const at::Tensor all = at::empty(shape, tensor.options());
    Lists lists{all.split_with_sizes(rows)};
    Tensors inputs{tensor};
    AllgatherOptions gather;
    gather.timeout = options.timeout;
    allgather(lists, inputs, gather)->wait();
    return all;
  };
  const at::Tensor counts = gathered(at::full({1}, mine._nnz(), at::kLong), Rows(static_cast<std::size_t>(size_), 1));
  const Rows rows(counts.const_data_ptr<std::int64_t>(), counts.const_data_ptr<std::int64_t>() + size_);
  const at::Tensor indices = gathered(mine._indices().t().contiguous(), rows).t();
  const at::Tensor values = gathered(mine._values(), rows);
  tensors[0].copy_(at::sparse_coo_tensor(indices, values, mine.sizes(), mine.options()).coalesce());
  return launch.finish(tensors);
}

}  // namespace syntony::glue
