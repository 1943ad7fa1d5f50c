#include "core/program/algorithms/butterfly.hpp"

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/program/moves/exchange.hpp"
#include "core/program/moves/moves.hpp"

namespace syntony {
namespace {

/// By step, then by rank below a power of two: its partner in the exchange. partner[s][partner[s][r]] == r.
using Partners = std::vector<std::vector<std::uint32_t>>;

/// Partners at distance `distance(s)`, by exclusive or.
template <typename Distance>
Partners exclusive_or(std::uint32_t ranks, const Distance& distance) {
  Partners partner;
  for (int step = 0; step < std::countr_zero(ranks); ++step) {
    auto& of = partner.emplace_back();
    for (std::uint32_t rank = 0; rank < ranks; ++rank) of.push_back(rank ^ distance(step));
  }
  return partner;
}

/// At distance 1 - 2 + 4 - 8 .. = 1, -1, 3, -5, 11 ..: even ranks to one side, odd ones to the other.
Partners swinging(std::uint32_t ranks) {
  Partners partner;
  const std::int64_t n = ranks;
  std::int64_t distance = 0, term = 1;
  for (int step = 0; step < std::countr_zero(ranks); ++step, term *= -2) {
    distance += term;
    auto& of = partner.emplace_back();
    for (std::int64_t rank = 0; rank < n; ++rank) {
      const std::int64_t to = rank % 2 == 0 ? rank + distance : rank - distance;
      of.push_back(static_cast<std::uint32_t>((to % n + n) % n));
    }
  }
  return partner;
}

/// The ranks whose data reaches `rank` from `step` on: its own half of them, then its partner's.
void append_reached(std::vector<std::uint32_t>& order, const Partners& partner, std::uint32_t rank, std::size_t step) {
  if (step == partner.size()) {
    order.push_back(rank);
    return;
  }
  append_reached(order, partner, rank, step + 1);
  append_reached(order, partner, partner[step][rank], step + 1);
}

/// By rank: the number of the chunk that it finishes. In this numbering, what two partners hold in any step is a run of
/// chunks, and each keeps one half of the run.
std::vector<std::uint32_t> positions(const Partners& partner, std::uint32_t ranks) {
  std::vector<std::uint32_t> order, position(ranks);
  append_reached(order, partner, 0, 0);
  for (std::uint32_t place = 0; place < ranks; ++place) position[order[place]] = place;
  return position;
}

/// An all_reduce over any number of ranks; the steps involve only those below the largest power of two.
class Butterfly {
 public:
  /// With `pieces` equal chunks.
  Butterfly(std::string name, std::uint32_t ranks, std::uint32_t pieces)
      : inner_(std::bit_floor(ranks)),
        pieces_(pieces),
        builder_(std::move(name), Collective::all_reduce, ranks, 0,
                 equal_chunks(Collective::all_reduce, ranks, pieces)),
        is_sum_(inner_, std::vector<bool>(pieces, false)) {}

  /// Ranks beyond the power of two add their data to that of their counterparts.
  void fold() {
    for (std::uint32_t rank = inner_; rank < builder_.ranks(); ++rank) {
      std::vector<PartialSum> parts;
      for (std::uint32_t chunk = 0; chunk < pieces_; ++chunk) {
        parts.push_back(sum_into(rank - inner_, chunk, builder_.input(rank, chunk)));
      }
      hand_over_sums(builder_, rank, rank - inner_, parts);
    }
  }

  /// Partners send each other all they have; both add, the lower rank's data first.
  void exchange_whole(std::span<const std::uint32_t> partner) {
    std::vector<Slot> landed;
    for (std::uint32_t rank = 0; rank < inner_; ++rank) {
      landed.push_back(builder_.scratch(rank, 0));
      builder_.transfer(partner[rank], held(partner[rank], 0), rank, landed.back());
    }
    for (std::uint32_t rank = 0; rank < inner_; ++rank) {
      const Slot own = held(rank, 0);
      const Slot parts[] = {rank < partner[rank] ? own : landed[rank], rank < partner[rank] ? landed[rank] : own};
      builder_.reduce(rank, builder_.output(rank, 0), parts);
      is_sum_[rank][0] = true;
    }
  }

  /// Partners hold the same chunks; each sends the chunks of the other's half and keeps its own half.
  void exchange_halves(std::span<const std::uint32_t> partner, std::span<const std::uint32_t> position,
                       std::uint32_t half) {
    for (std::uint32_t rank = 0; rank < inner_; ++rank) {
      const std::uint32_t first = position[rank] / half * half;
      std::vector<PartialSum> parts;
      for (std::uint32_t chunk = first; chunk < first + half; ++chunk) {
        parts.push_back(sum_into(rank, chunk, held(partner[rank], chunk)));
      }
      hand_over_sums(builder_, partner[rank], rank, parts);
    }
  }

  /// The way back: each sends the half that it has finished.
  void return_halves(std::span<const std::uint32_t> partner, std::span<const std::uint32_t> position,
                     std::uint32_t half) {
    for (std::uint32_t rank = 0; rank < inner_; ++rank) {
      const std::uint32_t first = position[partner[rank]] / half * half;
      std::vector<Handover> parts;
      for (std::uint32_t chunk = first; chunk < first + half; ++chunk) {
        parts.push_back({builder_.output(partner[rank], chunk), builder_.output(rank, chunk)});
      }
      hand_over(builder_, partner[rank], rank, parts, 1);
    }
  }

  /// Ranks beyond the power of two receive the result.
  Program unfold() {
    for (std::uint32_t rank = inner_; rank < builder_.ranks(); ++rank) {
      std::vector<Handover> parts;
      for (std::uint32_t chunk = 0; chunk < pieces_; ++chunk) {
        parts.push_back({held(rank - inner_, chunk), builder_.output(rank, chunk)});
      }
      hand_over(builder_, rank - inner_, rank, parts, 1);
    }
    if (builder_.ranks() == 1) builder_.copy(0, builder_.output(0, 0), builder_.input(0, 0));
    return builder_.finish();
  }

 private:
  /// Where a rank's part of a chunk is: its own input, or what it has summed.
  [[nodiscard]] Slot held(std::uint32_t rank, std::uint32_t chunk) const {
    return is_sum_[rank][chunk] ? builder_.output(rank, chunk) : builder_.input(rank, chunk);
  }
  PartialSum sum_into(std::uint32_t rank, std::uint32_t chunk, Slot message) {
    const Slot own = held(rank, chunk);
    is_sum_[rank][chunk] = true;
    return {message, builder_.output(rank, chunk), own};
  }

  std::uint32_t inner_;   // ranks: a power of two
  std::uint32_t pieces_;  // chunks
  ProgramBuilder builder_;
  std::vector<std::vector<bool>> is_sum_;  // by rank and chunk
};

Program in_halves(std::string name, std::uint32_t ranks, const Partners& partner) {
  const std::uint32_t inner = std::bit_floor(ranks);
  const std::vector<std::uint32_t> position = positions(partner, inner);
  Butterfly butterfly(std::move(name), ranks, inner);
  butterfly.fold();
  for (std::size_t step = 0; step < partner.size(); ++step) {
    butterfly.exchange_halves(partner[step], position, inner >> (step + 1));
  }
  for (std::size_t step = partner.size(); step-- > 0;) {
    butterfly.return_halves(partner[step], position, inner >> (step + 1));
  }
  return butterfly.unfold();
}

}  // namespace

Program recursive_doubling(std::uint32_t ranks) {
  Butterfly butterfly("recursive_doubling", ranks, 1);
  butterfly.fold();
  for (const auto& partner : exclusive_or(std::bit_floor(ranks), [](int step) { return 1U << step; })) {
    butterfly.exchange_whole(partner);
  }
  return butterfly.unfold();
}

Program rabenseifner(std::uint32_t ranks) {
  const std::uint32_t inner = std::bit_floor(ranks);
  return in_halves("rabenseifner", ranks, exclusive_or(inner, [inner](int step) { return inner >> (step + 1); }));
}

Program swing(std::uint32_t ranks) { return in_halves("swing", ranks, swinging(std::bit_floor(ranks))); }

}  // namespace syntony
