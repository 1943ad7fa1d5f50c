#include "bindings/core/group/even_call.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "bindings/core/memory.hpp"
#include "core/call.hpp"
#include "core/group/communicator.hpp"

namespace nb = nanobind;

namespace syntony {

bool run_even(const PythonCommunicator& self, std::string_view collective, nb::handle input, nb::handle output,
              std::string_view op, std::string_view algorithm, nb::handle priority, nb::handle partition, bool async,
              std::optional<double> timeout) {
  if (async || (timeout && !(*timeout > 0)) || !priority.is_none() || !partition.is_none()) return false;
  const auto operation = std::ranges::find(kReduceOps, op);
  const std::optional<Memory> source = memory_of(input);
  const std::optional<Memory> target = output.is_none() || output.is(input) ? source : memory_of(output);
  if (!source || !target || !target->writable || source->dtype != target->dtype || operation == kReduceOps.end())
    return false;
  Call call{.collective = collective_named(collective),
            .dtype = source->dtype,
            .op = static_cast<ReduceOp>(operation - kReduceOps.begin())};
  const CollectiveFacts& facts = facts_of(call.collective);
  const bool in_place = call.collective == Collective::all_reduce && source->data == target->data;
  const bool overlap = source->data < target->data + target->elements * call.element_bytes() &&
                       target->data < source->data + source->elements * call.element_bytes();
  if (facts.rooted() || (overlap && !in_place)) return false;
  const nb::gil_scoped_release unlocked;
  Communicator& group = self.group();
  const std::size_t ranks = group.size(), destinations = facts.by_destination ? ranks : 1;
  const std::size_t part = source->elements / destinations;
  if (source->elements != part * destinations || target->elements != part * (facts.by_source ? ranks : 1)) return false;
  const Member member{group.rank(), group.size()};
  if (blocks_of_rank(call.collective, group.size()) == 1) {
    const InputPart whole{source->data, part};
    const OutputPart result{target->data, part};
    call.blocks = blocks_of(call.collective, member, {&whole, 1}, {&result, 1});
  } else {
    const std::vector<std::size_t> counts(ranks, part);
    const std::span inputs = std::span(counts).first(destinations);
    const std::span outputs = std::span(counts).first(facts.by_source ? ranks : 1);
    call.blocks =
        blocks_of(call.collective, member, consecutive<const std::byte>(source->data, inputs, call.element_bytes()),
                  consecutive(target->data, outputs, call.element_bytes()), part);
  }
  if (algorithm != call.options.algorithm) call.options.algorithm = algorithm;
  if (timeout) call.options.timeout = from_seconds(*timeout);
  group.run(std::move(call));
  return true;
}

}  // namespace syntony
