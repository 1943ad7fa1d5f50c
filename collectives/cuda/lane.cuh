// A lane of a generated kernel (collectives/cuda/source.py): its turns, its waits, its messages.
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
// thread of a block between two barriers of all its threads.
#pragma once

#include "elements.cuh"

namespace syntony {

/// Where a chunk begins in its block, its size, and the size of its slices, in bytes.
struct Chunk {
  long long first, bytes, slice;
};

/// The arguments of a kernel; `Launch` in collectives/cuda/launch.py, field by field.
struct Launch {
  char* const* slots;   // by the slot's row in Program.slots
  const Chunk* chunks;  // by chunk
  char* const* fifos;   // per rank: messages to it that are not read where they lie
  u64* const* flags;    // per rank
  u64* trouble;         // 0, or 1 + the row of the instruction that waited too long
  u64 patience;         // nanoseconds
  long long slices;
  long long piece_bytes;  // room for one slot's slice in a message
  long long message_bytes;
  int stripes;
  int first_lane, lanes;  // those of this launch; blocks: lanes * stripes
};

/// The part of a chunk that is one slice.
struct Span {
  long long at, bytes;
  long long phase;  // of its place in the block, modulo 16: how pieces lie in messages
};

class Lane {
  static constexpr int kLine = 16;   // flags are 128 bytes apart
  static constexpr int kHeader = 2;  // the first two of a rank: its epoch, and the blocks that have ended in it

 public:
  __device__ Lane(const Launch& launch, int rank) : launch_(launch), rank_(rank), stripe_(block() / launch.lanes) {
    epoch_ = acquire(launch.flags[rank]) << 32;
    rounds_ = (launch.slices - stripe_ + launch.stripes - 1) / launch.stripes;
    if (rounds_ < 0) rounds_ = 0;
  }

  // Turns and slices.

  __device__ long long turns(int greatest_skew) const { return rounds_ == 0 ? 0 : rounds_ + greatest_skew; }
  /// Whether an instruction of this skew has a slice in this turn, which is then the one that `span` is about.
  __device__ bool takes(long long turn, int skew) {
    round_ = turn - skew;
    return 0 <= round_ && round_ < rounds_;
  }
  __device__ Span span(int chunk) const {
    const Chunk& whole = launch_.chunks[chunk];
    const long long at = (stripe_ + round_ * launch_.stripes) * whole.slice;
    const long long rest = whole.bytes > at ? whole.bytes - at : 0;
    return {at, rest < whole.slice ? rest : whole.slice, (whole.first + at) & 15};
  }
  __device__ char* slot(int row, const Span& span) const { return launch_.slots[row] + span.at; }
  /// Piece `slot` of message `number` of a connection into `rank`, which has `connections` of them, `depth` deep.
  __device__ char* piece(int rank, int connections, int connection, int depth, u64 number, int slot,
                         const Span& span) const {
    const long long place = (static_cast<long long>(stripe_) * connections + connection) * depth +
                            static_cast<long long>(number % static_cast<u64>(depth));
    return launch_.fifos[rank] + place * launch_.message_bytes + slot * launch_.piece_bytes + span.phase;
  }

  // Flags. `flags` is how many the rank has per stripe.

  __device__ u64* flag(int rank, int flags, int number) const {
    return launch_.flags[rank] + (kHeader + static_cast<long long>(stripe_) * flags + number) * kLine;
  }
  /// What a flag says when something was done `times` in this epoch; `ended`, when the epoch is over.
  __device__ u64 times(u64 times) const { return epoch_ | times; }
  __device__ u64 ended() const { return epoch_ + (1ULL << 32); }
  /// When an instruction that others wait for is done with this round's slice.
  __device__ u64 this_round() const { return epoch_ | static_cast<u64>(round_ + 1); }

  /// Until the flag says `value`. When that takes longer than the launch's patience, or has so for another lane, no
  /// wait waits any more: the kernel ends, `row` stands in `trouble`, and the results are void.
  __device__ void await(const u64* flag, u64 value, int row) {
    if (thread() != 0) return;
    u64 begun = 0;
    for (u32 spins = 1; acquire(flag) < value; ++spins) {
      if (spins % 64 != 0) continue;
      pause();
      if (spins % 1024 != 0) continue;
      if (acquire(launch_.trouble) != 0) return;
      const u64 now = nanoseconds();
      if (begun == 0) begun = now;
      if (now - begun > launch_.patience) {
        set_once(launch_.trouble, static_cast<u64>(row) + 1);
        return;
      }
    }
  }
  /// All waits of an instruction lie before it, all posts after the next barrier.
  __device__ void barrier() const { block_barrier(); }
  __device__ void post(u64* flag, u64 value) const {
    if (thread() == 0) release(flag, value);
  }

  /// The last thing that a lane does: the last block of its rank opens the next epoch.
  __device__ void end(int lanes_of_rank) const {
    block_barrier();
    if (thread() != 0) return;
    u64* const header = launch_.flags[rank_];
    if (add_one(header + kLine) + 1 == static_cast<u64>(lanes_of_rank) * launch_.stripes) {
      release(header + kLine, 0);
      release(header, ended() >> 32);
    }
  }

 private:
  const Launch& launch_;
  const int rank_;
  const int stripe_;
  u64 epoch_;
  long long rounds_;     // slices of this stripe
  long long round_ = 0;  // the one at work
};

}  // namespace syntony
