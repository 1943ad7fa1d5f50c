// A lane of a generated kernel (collectives/cuda/source.py): its iterations, its waits, its messages.
//
// A thread block runs one lane on one *stripe*: of n stripes, stripe k takes the slices k, k + n, .. Slices touch
// disjoint bytes, so stripes know nothing of each other: each has flags and FIFOs of its own, and so any number of
// blocks can share a lane's work.
//
//     lane 0  ▏slices 0 2 4 ..│ block 0      lane 1  ▏slices 0 2 4 ..│ block 2
//             ▏slices 1 3 5 ..│ block 1              ▏slices 1 3 5 ..│ block 3
//
// Flags only ever grow, by (epoch << 32 | how often): an epoch is one launch, so nothing is cleared between launches,
// and a rank that is a launch ahead cannot be mistaken. Every rank counts epochs in its own memory, which makes a
// launch the same each time: a CUDA graph may replay it. Writers release and readers acquire at system scope, by one
// thread of a block between two barriers of all its threads. A Machine is as in interpreter.hpp.
#pragma once

#include "cuda/device/combine.hpp"
#include "cuda/device/freestanding.hpp"
#include "cuda/device/qualifiers.hpp"

namespace syntony::cuda::straight {

/// Where a chunk begins in its block, its size, and the size of its slices, in bytes.
struct Chunk {
  std::int64_t first, bytes, slice;
};

/// The arguments of a kernel; `LAUNCH` in collectives/cuda/launch.py, field by field.
struct Launch {
  std::byte* const* slots;      // by the slot's row in Program.slots
  const Chunk* chunks;          // by chunk
  std::byte* const* fifos;      // per rank: messages to it that are not read where they lie
  std::uint64_t* const* flags;  // per rank
  std::uint64_t* trouble;       // 0, or 1 + the row of an instruction that waited too long
  std::uint64_t patience;       // nanoseconds
  std::int64_t slices;
  std::int64_t piece_bytes;  // room for one slot's slice in a message
  std::int64_t message_bytes;
  std::int32_t stripes;
  std::int32_t first_lane, lanes;  // those of this launch; blocks: lanes * stripes
};

/// The part of a chunk that is one slice.
struct Span {
  std::int64_t at;
  std::uint64_t bytes;
  std::int64_t phase;  // of its place in the block, modulo 16: how pieces lie in messages
};

template <class Machine>
class Lane {
  static constexpr int kLine = 16;   // flags are 128 bytes apart
  static constexpr int kHeader = 2;  // the first two of a rank: its epoch, and the blocks that have ended in it

 public:
  SYNTONY_DEVICE Lane(const Machine& machine, const Launch& launch, int rank, int block)
      : machine_(machine), launch_(launch), rank_(rank), stripe_(block / launch.lanes) {
    epoch_ = machine.acquire(launch.flags[rank]) << 32;
    rounds_ = (launch.slices - stripe_ + launch.stripes - 1) / launch.stripes;
    if (rounds_ < 0) rounds_ = 0;
  }

  // Iterations and slices.

  SYNTONY_DEVICE std::int64_t iterations(int greatest_skew) const { return rounds_ == 0 ? 0 : rounds_ + greatest_skew; }
  /// Whether an instruction of this skew has a slice in this iteration, which is then the one that `span` is about.
  SYNTONY_DEVICE bool takes(std::int64_t iteration, int skew) {
    round_ = iteration - skew;
    return 0 <= round_ && round_ < rounds_;
  }
  SYNTONY_DEVICE Span span(int chunk) const {
    const Chunk& whole = launch_.chunks[chunk];
    const std::int64_t at = (stripe_ + round_ * launch_.stripes) * whole.slice;
    const std::int64_t rest = whole.bytes > at ? whole.bytes - at : 0;
    return {at, static_cast<std::uint64_t>(rest < whole.slice ? rest : whole.slice), (whole.first + at) & 15};
  }
  SYNTONY_DEVICE std::byte* slot(int row, const Span& span) const { return launch_.slots[row] + span.at; }
  /// Piece `slot` of message `number` of a connection into `rank`, which has `connections` of them, `depth` deep.
  SYNTONY_DEVICE std::byte* piece(int rank, int connections, int connection, int depth, std::uint64_t number, int slot,
                                  const Span& span) const {
    const std::int64_t place = (std::int64_t{stripe_} * connections + connection) * depth +
                               static_cast<std::int64_t>(number % static_cast<std::uint64_t>(depth));
    return launch_.fifos[rank] + place * launch_.message_bytes + slot * launch_.piece_bytes + span.phase;
  }

  // Flags. `flags` is how many the rank has per stripe.

  SYNTONY_DEVICE std::uint64_t* flag(int rank, int flags, int number) const {
    return launch_.flags[rank] + (kHeader + std::int64_t{stripe_} * flags + number) * kLine;
  }
  /// What a flag says when something was done `times` in this epoch; `ended`, when the epoch is over.
  SYNTONY_DEVICE std::uint64_t times(std::uint64_t times) const { return epoch_ | times; }
  SYNTONY_DEVICE std::uint64_t ended() const { return epoch_ + (std::uint64_t{1} << 32); }
  /// When an instruction that others wait for is done with this round's slice.
  SYNTONY_DEVICE std::uint64_t this_round() const { return epoch_ | static_cast<std::uint64_t>(round_ + 1); }

  /// Until the flag says `value`. When that takes longer than the launch's patience, or has so for another lane, no
  /// wait waits any more: the kernel ends, `row` stands in `trouble`, and the results are void.
  SYNTONY_DEVICE void await(std::uint64_t* flag, std::uint64_t value, int row) {
    if (machine_.thread() != 0) return;
    std::uint64_t begun = 0;
    for (std::uint32_t looks = 1; machine_.acquire(flag) < value; ++looks) {
      if (looks % 64 != 0) continue;
      machine_.pause(looks);
      if (looks % 1024 != 0) continue;
      if (machine_.acquire(launch_.trouble) != 0) return;
      const std::uint64_t now = machine_.nanoseconds();
      if (begun == 0) begun = now;
      if (now - begun > launch_.patience) {
        machine_.release(launch_.trouble, static_cast<std::uint64_t>(row) + 1);  // of several, any will do
        return;
      }
    }
  }
  /// All waits of an instruction lie before it, all posts after the next barrier.
  SYNTONY_DEVICE void barrier() const { machine_.sync(); }
  SYNTONY_DEVICE void post(std::uint64_t* flag, std::uint64_t value) const {
    if (machine_.thread() == 0) machine_.release(flag, value);
  }

  /// The last thing that a lane does: the last block of its rank opens the next epoch.
  SYNTONY_DEVICE void end(int lanes_of_rank) const {
    machine_.sync();
    if (machine_.thread() != 0) return;
    std::uint64_t* const header = launch_.flags[rank_];
    if (machine_.add(header + kLine, 1) + 1 == static_cast<std::uint64_t>(lanes_of_rank) * launch_.stripes) {
      machine_.release(header + kLine, 0);
      machine_.release(header, ended() >> 32);
    }
  }

 private:
  const Machine& machine_;
  const Launch& launch_;
  const int rank_;
  const int stripe_;
  std::uint64_t epoch_;
  std::int64_t rounds_;     // slices of this stripe
  std::int64_t round_ = 0;  // the one at work
};

}  // namespace syntony::cuda::straight
