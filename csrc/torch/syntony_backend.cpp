#include "torch/syntony_backend.hpp"

#include <numeric>

#include "torch/tensor_call.hpp"

namespace syntony::glue {

// ---- one tensor per rank --------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::broadcast(Tensors& tensors, const BroadcastOptions& options) {
  TensorCall call(*this, OpType::BROADCAST, "broadcast", tensors, options);
  const std::uint32_t root = call.peer(options.rootRank);
  const at::Tensor& tensor = call.single(tensors);
  c10d::assertRootTensor(call.failing(), options.rootTensor, 1);
  const OutputPart memory = call.buffers().in_place(tensor);
  call.move(Collective::broadcast, root, tensor, {memory.memory, memory.elements}, memory);
  return call.finish(tensors);
}

WorkPtr SyntonyBackend::allreduce(Tensors& tensors, const AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  TensorCall call(*this, OpType::ALLREDUCE, "all_reduce", tensors, options);
  const at::Tensor& tensor = call.single(tensors);
  call.reduce_in_place(Collective::all_reduce, tensor, options.reduceOp, 0);
  return call.finish(tensors);
}

WorkPtr SyntonyBackend::allreduce_coalesced(Tensors& tensors, const AllreduceCoalescedOptions& options) {
  TensorCall call(*this, OpType::ALLREDUCE_COALESCED, "all_reduce", tensors, options);
  c10d::assertNonEmpty(call.failing(), tensors);
  for (const at::Tensor& tensor : tensors) call.check_dense(tensor);
  for (const at::Tensor& tensor : tensors) {
    call.reduce_in_place(Collective::all_reduce, tensor, options.reduceOp, 0);
  }
  return call.finish(tensors);
}

WorkPtr SyntonyBackend::reduce(Tensors& tensors, const ReduceOptions& options) {
  TensorCall call(*this, OpType::REDUCE, "reduce", tensors, options);
  const std::uint32_t root = call.peer(options.rootRank);
  const at::Tensor& tensor = call.single(tensors);
  c10d::assertRootTensor(call.failing(), options.rootTensor, 1);
  if (call.is_here(root)) {
    call.reduce_in_place(Collective::reduce, tensor, options.reduceOp, root);
  } else {
    call.reduce(Collective::reduce, tensor, options.reduceOp, root, Inputs{call.input(tensor)}, {});
  }
  return call.finish(tensors);
}

// ---- one tensor, one list -------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::allgather(Lists& outputs, Tensors& inputs, const AllgatherOptions& options) {
  TensorCall call(*this, OpType::ALLGATHER, "all_gather", inputs, options);
  const at::Tensor& input = call.single(inputs, "input ");
  call.check_pairs(outputs.size(), inputs.size());
  const Tensors& list = call.single_list(outputs, input, false);
  call.move(Collective::all_gather, input, 0, Inputs{call.input(input)}, call.outputs(list), even(list));
  return call.finish(list);
}

WorkPtr SyntonyBackend::allgather_coalesced(Lists& outputs, Tensors& inputs, const AllgatherOptions& options) {
  TensorCall call(*this, OpType::ALLGATHER_COALESCED, "all_gather", inputs, options);
  call.require(!inputs.empty(), "requires non-empty input tensor list");
  call.require(outputs.size() == static_cast<std::size_t>(size_), "output lists should be equal to world size");
  for (const Tensors& of_rank : outputs) {
    call.require(of_rank.size() == inputs.size(), "invalid output size: (expected length ", inputs.size(), ", got ",
                 of_rank.size(), ")");
  }
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Tensors list;
    for (const Tensors& of_rank : outputs) list.push_back(of_rank[i]);
    call.check_dense(inputs[i]);
    call.check_list(list, inputs[i], true);
    call.move(Collective::all_gather, inputs[i], 0, Inputs{call.input(inputs[i])}, call.outputs(list));
    result.insert(result.end(), list.begin(), list.end());
  }
  return call.finish(result);
}

WorkPtr SyntonyBackend::gather(Lists& outputs, Tensors& inputs, const GatherOptions& options) {
  TensorCall call(*this, OpType::GATHER, "gather", inputs, options);
  const std::uint32_t root = call.peer(options.rootRank);
  const at::Tensor& input = call.single(inputs, "input ");
  const bool here = call.is_here(root);
  call.require(here || outputs.empty(), "requires empty output on non-root");
  const Tensors gathered = here ? call.single_list(outputs, input, true) : Tensors();
  call.move(Collective::gather, input, root, Inputs{call.input(input)},
            here ? call.outputs(gathered) : call.elsewhere<OutputPart>(input));
  return call.finish(gathered);
}

WorkPtr SyntonyBackend::scatter(Tensors& outputs, Lists& inputs, const ScatterOptions& options) {
  TensorCall call(*this, OpType::SCATTER, "scatter", inputs.empty() ? outputs : inputs[0], options);
  const std::uint32_t root = call.peer(options.rootRank);
  const at::Tensor& output = call.single(outputs, "output ");
  const bool here = call.is_here(root);
  call.require(here || inputs.empty(), "requires empty input on non-root");
  call.move(Collective::scatter, output, root,
            here ? call.inputs(call.single_list(inputs, output, true)) : call.elsewhere<InputPart>(output),
            Outputs{call.output(output)});
  return call.finish(outputs);
}

WorkPtr SyntonyBackend::reduce_scatter(Tensors& outputs, Lists& inputs, const ReduceScatterOptions& options) {
  TensorCall call(*this, OpType::REDUCE_SCATTER, "reduce_scatter", inputs.empty() ? outputs : inputs[0], options);
  const at::Tensor& output = call.single(outputs, "output ");
  const Tensors& list = call.single_list(inputs, output, false);
  call.reduce(Collective::reduce_scatter, output, options.reduceOp, 0, call.inputs(list), call.output(output),
              even(list));
  return call.finish(outputs);
}

WorkPtr SyntonyBackend::alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) {
  TensorCall call(*this, OpType::ALLTOALL, "all_to_all", inputs, options);
  const auto ranks = static_cast<std::size_t>(size_);
  call.require(inputs.size() == ranks, "input tensor list size ", inputs.size(), " does not match world size ", ranks);
  call.require(outputs.size() == ranks, "output tensor list size ", outputs.size(), " does not match world size ",
               ranks);
  call.check_list(inputs, outputs[self()], false);
  call.check_list(outputs, inputs[self()], false);
  call.move(Collective::all_to_all, inputs[0], 0, call.inputs(inputs), call.outputs(outputs), false);
  return call.finish(outputs);
}

// ---- one flat tensor of all blocks ----------------------------------------------------------------------------------

WorkPtr SyntonyBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const AllgatherOptions& options) {
  TensorCall call(*this, OpType::_ALLGATHER_BASE, "_all_gather_base", inputs, options);
  call.check_pairs(outputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.check_parts(outputs[i], inputs[i], "output tensor size must be equal to world_size times input tensor size");
    call.move(Collective::all_gather, inputs[i], 0, Inputs{call.input(inputs[i])},
              call.outputs(outputs[i], call.parts(outputs[i])));
  }
  return call.finish(outputs);
}

WorkPtr SyntonyBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                        const ReduceScatterOptions& options) {
  TensorCall call(*this, OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base", inputs, options);
  call.check_pairs(outputs.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.check_parts(inputs[i], outputs[i], "input tensor must be the same size as output size times world size");
    call.reduce(Collective::reduce_scatter, outputs[i], options.reduceOp, 0,
                call.inputs(inputs[i], call.parts(inputs[i])), call.output(outputs[i]));
  }
  return call.finish(outputs);
}

WorkPtr SyntonyBackend::alltoall_base(at::Tensor& output, at::Tensor& input, Rows& output_splits, Rows& input_splits,
                                      const AllToAllOptions& options) {
  TensorCall call(*this, OpType::ALLTOALL_BASE, "all_to_all", {input}, options);
  call.check_dense(input);
  call.check_dense(output);
  const bool even = input_splits.empty() && output_splits.empty();
  call.require(output.scalar_type() == input.scalar_type(), "output tensor must have the same type as input tensor");
  call.require(!even || output.numel() == input.numel(), "without split sizes output and input must be equally large");
  c10d::checkSplitSizes(input_splits, input, size_);
  c10d::checkSplitSizes(output_splits, output, size_);
  const Counts sent = call.parts(input, input_splits), received = call.parts(output, output_splits);
  call.require(sent[self()] == received[self()], "this rank sends itself ", sent[self()], " elements but expects ",
               received[self()]);
  call.move(Collective::all_to_all, input, 0, call.inputs(input, sent), call.outputs(output, received), even);
  return call.finish({output});
}

// ---- sparse ---------------------------------------------------------------------------------------------------------

WorkPtr SyntonyBackend::allreduce_sparse(Tensors& tensors, const AllreduceOptions& options) {
  // Three gathers and a local sum: how many entries each rank has, then their indices, then their values. Waits for
  // them here, because a sparse gradient is small compared with dense ones.
  TensorCall call(*this, OpType::_ALLREDUCE_SPARSE, "all_reduce", tensors, options);
  call.require(tensors.size() == 1, "requires a single-element tensor list");
  call.require(tensors[0].is_sparse(), "requires a sparse (COO) tensor");
  call.require(options.reduceOp.op_ == c10d::ReduceOp::SUM, "unsupported reduction operation: sparse tensors only sum");
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
  return call.finish(tensors);
}

}  // namespace syntony::glue
