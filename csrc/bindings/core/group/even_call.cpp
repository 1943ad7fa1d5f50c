#include "bindings/core/group/even_call.hpp"

#include <algorithm>
#include <utility>

#include "bindings/core/memory.hpp"
#include "core/call.hpp"
#include "core/group/communicator.hpp"

namespace nb = nanobind;

namespace syntony {

namespace {

/// Those that may be None.
bool optional(std::string_view name) { return name == "timeout" || name == "priority" || name == "partition"; }

/// What CallOptions of collectives/verbs.py say; nothing if that is more than an algorithm and a timeout.
std::optional<CallOptions> simple_options(const nb::dict& given) {
  CallOptions options;
  for (const auto& [key, value] : given) {
    const auto name = nb::cast<std::string_view>(key);
    if (name == "algorithm" && nb::isinstance<nb::str>(value)) {
      options.algorithm = nb::cast<std::string_view>(value);
    } else if (double seconds = 0; name == "timeout" && nb::try_cast(value, seconds) && seconds > 0) {
      options.timeout = from_seconds(seconds);
    } else if (name == "async_op" ? !value.is(Py_False) : !value.is_none() || !optional(name)) {
      return std::nullopt;
    }
  }
  return options;
}

}  // namespace

bool run_even(const PythonCommunicator& self, std::string_view collective, nb::handle input, nb::handle output,
              std::string_view op, const nb::dict& options) {
  const auto operation = std::ranges::find(kReduceOps, op);
  const std::optional<Memory> source = memory_of(input);
  const std::optional<Memory> target = output.is_none() || output.is(input) ? source : memory_of(output);
  if (!source || !target || !target->writable || source->dtype != target->dtype || operation == kReduceOps.end())
    return false;
  Call call{.collective = collective_named(collective),
            .dtype = source->dtype,
            .op = static_cast<ReduceOp>(operation - kReduceOps.begin())};
  if (options.size() > 0) {
    std::optional<CallOptions> simple = simple_options(options);
    if (!simple) return false;
    call.options = std::move(*simple);
  }
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
  group.run(std::move(call));
  return true;
}

}  // namespace syntony
