#include "core/program/moves/exchange.hpp"

namespace syntony {
namespace {

bool follows(Slot next, Slot slot) { return next == Slot{slot.space, slot.index + 1}; }

bool follows(const Handover& next, const Handover& last) {
  return follows(next.from, last.from) && follows(next.to, last.to);
}

bool follows(const PartialSum& next, const PartialSum& last) {
  return follows(next.from, last.from) && follows(next.to, last.to) && follows(next.operand, last.operand);
}

/// Calls send(first, count) for each run of consecutive slots in `chunks`.
template <typename Part, typename Send>
void for_each_run(std::span<const Part> chunks, const Send& send) {
  for (std::size_t begin = 0; begin < chunks.size();) {
    std::size_t end = begin + 1;
    while (end < chunks.size() && follows(chunks[end], chunks[end - 1])) ++end;
    send(chunks[begin], static_cast<std::uint32_t>(end - begin));
    begin = end;
  }
}

}  // namespace

void hand_over(ProgramBuilder& builder, std::uint32_t src, std::uint32_t dst, std::span<const Handover> chunks,
               std::uint16_t channel) {
  for_each_run(chunks, [&](const Handover& first, std::uint32_t count) {
    builder.transfer(src, first.from, dst, first.to, channel, count);
  });
}

void hand_over_sums(ProgramBuilder& builder, std::uint32_t src, std::uint32_t dst, std::span<const PartialSum> chunks,
                    std::uint16_t channel) {
  for_each_run(chunks, [&](const PartialSum& first, std::uint32_t count) {
    builder.transfer_reduce(src, first.from, dst, first.to, first.operand, channel, count);
  });
}

}  // namespace syntony
