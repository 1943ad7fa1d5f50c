#include "bindings/core/group/even_call.hpp"

#include <algorithm>
#include <utility>

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
  if (facts.rooted()) return false;
  const nb::gil_scoped_release unlocked;
  Communicator& group = self.group();
  const std::size_t ranks = group.size(), destinations = facts.by_destination ? ranks : 1;
  const std::size_t part = source->elements / destinations;
  if (source->elements != part * destinations || target->elements != part * (facts.by_source ? ranks : 1)) return false;
  const std::size_t element_bytes = call.element_bytes(), skipped = group.rank() * part * element_bytes;
  const bool in_place =
      source->data + (facts.by_destination ? skipped : 0) == target->data + (facts.by_source ? skipped : 0);
  const bool overlap = source->data < target->data + target->elements * element_bytes &&
                       target->data < source->data + source->elements * element_bytes;
  if (overlap && !in_place) return false;
  call.blocks =
      even_blocks(call.collective, {group.rank(), group.size()}, source->data, target->data, part, element_bytes);
  if (algorithm != call.options.algorithm) call.options.algorithm = algorithm;
  if (timeout) call.options.timeout = from_seconds(*timeout);
  group.run(std::move(call));
  return true;
}

}  // namespace syntony
