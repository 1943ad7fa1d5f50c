// The building block of log-step algorithms: one rank hands several chunks to another in as few messages as slots
// allow.
//
// A message carries consecutive slots (Instruction::count). So a set of chunks goes in one message if its slots are
// consecutive at both ends, and otherwise in one message per consecutive run.
#pragma once

#include <cstdint>
#include <span>

#include "core/program/program_builder.hpp"

namespace syntony {

/// Where a chunk goes: from a slot of the sender to a slot of the receiver.
struct Handover {
  Slot from, to;
};

/// `chunks` go from rank `src` to rank `dst` in the given order, each run of consecutive slots in one message.
void hand_over(ProgramBuilder& builder, std::uint32_t src, std::uint32_t dst, std::span<const Handover> chunks,
               std::uint16_t channel = 0);

/// The same for partial sums: at the receiver, `to` becomes message + `operand`.
struct PartialSum {
  Slot from, to, operand;
};
void hand_over_sums(ProgramBuilder& builder, std::uint32_t src, std::uint32_t dst, std::span<const PartialSum> chunks,
                    std::uint16_t channel = 0);

}  // namespace syntony
