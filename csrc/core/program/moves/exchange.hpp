// What log-step algorithms are made of: one rank hands several chunks to another in as few messages as slots allow.
//
// A message carries consecutive slots (Instruction::count). So a set of chunks goes in one message where the slots
// follow each other at both ends, and in one message per such run where they do not.
#pragma once

#include <cstdint>
#include <span>

#include "core/program/program_builder.hpp"

namespace syntony {

/// A chunk's way: from a slot of the sender to one of the receiver.
struct Handover {
  Slot from, to;
};

/// `chunks` go from rank `src` to rank `dst`, runs of consecutive slots in one message each, in the order given.
void hand_over(ProgramBuilder& builder, std::uint32_t src, std::uint32_t dst, std::span<const Handover> chunks,
               std::uint16_t channel = 0);

/// The same, where each chunk is a partial sum: at the receiver `to` becomes message + `operand`.
struct PartialSum {
  Slot from, to, operand;
};
void hand_over_sums(ProgramBuilder& builder, std::uint32_t src, std::uint32_t dst, std::span<const PartialSum> chunks,
                    std::uint16_t channel = 0);

}  // namespace syntony
