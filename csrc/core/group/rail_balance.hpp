// Large all_reduces while hosts have lost network cards: the ranks compare now and then what is left of their networks,
// and from the same operation on, a host with less adds up less for the others (`two_shot` with shares).
//
//      launched, numbered   a1  a2 .. a16  c17  a18  a19 ..    c: an all_gather of eight bytes, that nobody waits for
//      admitted             a1  a2 .. a16  c17  a18  a19 ..    W operations are admitted at once, so that every rank
//                           usual .............. usual  shares   knows the result of c17 when it admits number 17 + W
//
// The choice is made when an operation is admitted, because callers may be any number of operations ahead.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "core/program/algorithms/direct.hpp"
#include "core/recorder/wires.hpp"

namespace syntony {

class RailBalance {
 public:
  static constexpr std::size_t kLarge = std::size_t{4} << 20U;  // bytes of an all_reduce that counts

  /// What the ranks tell each other: the share of its sockets that each has left.
  struct Comparison {
    double mine = 1;
    std::vector<double> all;  // by rank
  };

  /// `windows`: operations that are admitted at once.
  RailBalance(std::uint32_t ranks, std::uint32_t windows, std::vector<std::shared_ptr<Wires>> wires)
      : ranks_(ranks), windows_(windows), wires_(std::move(wires)) {}

  /// Counts a large all_reduce about to be launched. If the ranks must compare before it: what to gather into, which
  /// launched() must be told of.
  [[nodiscard]] std::shared_ptr<Comparison> due();
  void launched(std::uint64_t sequence, std::shared_ptr<const Comparison> comparison);
  /// For operation `sequence`, which is being admitted; nothing if all ranks have the same left.
  [[nodiscard]] std::optional<Shares> shares(std::uint64_t sequence);

 private:
  struct Launched {
    std::uint64_t sequence = 0;
    std::shared_ptr<const Comparison> comparison;
  };

  [[nodiscard]] double left() const;

  const std::uint32_t ranks_;
  const std::uint32_t windows_;
  const std::vector<std::shared_ptr<Wires>> wires_;
  std::mutex mutex_;
  std::uint64_t counted_ = 0;
  std::deque<Launched> launched_;  // from the last one that all know, if any
};

}  // namespace syntony
