#include "core/program/algorithms/direct.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/program/collective.hpp"
#include "core/program/moves/moves.hpp"

namespace syntony {
namespace {

constexpr double kWhole = 1U << 24U;  // the resolution of shares

std::vector<Held> inputs_of_all(const ProgramBuilder& builder, std::uint32_t chunk) {
  std::vector<Held> parts;
  for (std::uint32_t rank = 0; rank < builder.ranks(); ++rank) parts.push_back({rank, builder.input(rank, chunk)});
  return parts;
}

Program in_one_shot(std::string name, Collective collective, std::uint32_t ranks, std::uint32_t root,
                    Association association) {
  const std::vector<Chunk> chunks = equal_chunks(collective, ranks, 1);  // chunk b is block b
  ProgramBuilder builder(std::move(name), collective, ranks, root, chunks);
  std::vector<Sum> sums;
  std::vector<Move> moves;
  for (std::uint32_t block = 0; block < chunks.size(); ++block) {
    for (std::uint32_t to = 0; to < ranks; ++to) {
      if (!ends_with(collective, ranks, root, to, block)) continue;
      const Slot dst = builder.output(to, block);
      if (reduces(collective)) {
        sums.push_back({.owner = to, .chunk = block, .dst = dst, .parts = inputs_of_all(builder, block)});
        continue;
      }
      for (std::uint32_t from = 0; from < ranks; ++from) {
        if (!starts_with(collective, ranks, root, from, block)) continue;
        moves.push_back({{from, builder.input(from, block)}, {to, dst}});
      }
    }
  }
  sum_all(builder, sums, association);
  move_all(builder, moves);
  return builder.finish();
}

/// Every rank with a share owns one chunk, whose weight is the share.
Program in_two_shots(std::string name, const Shares& shares, Association association) {
  const auto ranks = static_cast<std::uint32_t>(shares.size());
  std::vector<std::uint32_t> owners;  // by chunk
  std::vector<Chunk> chunks;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    if (shares[rank] == 0) continue;
    owners.push_back(rank);
    chunks.push_back({.block = 0, .weight = shares[rank]});
  }
  ProgramBuilder builder(std::move(name), Collective::all_reduce, ranks, 0, std::move(chunks));
  std::vector<Sum> sums;
  std::vector<Move> moves;
  for (std::uint32_t chunk = 0; chunk < owners.size(); ++chunk) {
    const std::uint32_t owner = owners[chunk];
    const Slot sum = builder.output(owner, chunk);
    sums.push_back({.owner = owner, .chunk = chunk, .dst = sum, .parts = inputs_of_all(builder, chunk)});
    for (std::uint32_t to = 0; to < ranks; ++to) {
      if (to != owner) moves.push_back({{owner, sum}, {to, builder.output(to, chunk)}});
    }
  }
  sum_all(builder, sums, association);
  // Unequal shares: data and sums go over each connection in turn, so that it carries them in the proportion of the
  // shares and no slow wire falls behind. A rank without a share may be late, and then sums must not hold back data.
  const bool in_turn =
      owners.size() == ranks && std::ranges::adjacent_find(shares, std::not_equal_to<>{}) != shares.end();
  if (in_turn) builder.skew(2);
  move_all(builder, moves, in_turn ? 0 : 1);
  return builder.finish();
}

}  // namespace

Program direct(Collective collective, std::uint32_t ranks, std::uint32_t root) {
  return in_one_shot("direct", collective, ranks, root, Association::at_once);
}

Shares shares_for(std::span<const double> rates) {
  const bool fine = std::ranges::all_of(rates, [](double rate) { return std::isfinite(rate) && rate >= 0; });
  if (!fine || std::ranges::none_of(rates, [](double rate) { return rate > 0; })) {
    throw std::invalid_argument("rates must be finite, none negative, and one of them at least above 0");
  }
  std::vector<double> fastest(rates.begin(), rates.end());
  std::ranges::sort(fastest, std::greater<>{});
  const double others = std::max(1.0, static_cast<double>(rates.size()) - 2);  // with two ranks, any shares are right
  double sum = 0, time = 0;
  for (std::size_t sharing = 0; sharing < fastest.size() && fastest[sharing] > 0; ++sharing) {
    if (sharing > 0 && fastest[sharing] * time <= 1) break;
    sum += fastest[sharing];
    time = (others + static_cast<double>(sharing + 1)) / sum;
  }
  Shares shares;
  for (const double rate : rates) {
    shares.push_back(static_cast<std::uint32_t>(std::lround(std::max(0.0, rate * time - 1) / others * kWhole)));
  }
  return shares;
}

Program two_shot_all_reduce(std::uint32_t ranks, const Shares& shares) {
  if (!shares.empty() && (shares.size() != ranks || std::ranges::max(shares) == 0)) {
    throw std::invalid_argument("there must be a share for each of the " + std::to_string(ranks) +
                                " ranks, and one of them above 0");
  }
  return in_two_shots("two_shot", shares.empty() ? Shares(ranks, 1) : shares, Association::at_once);
}

Program pairwise(Collective collective, std::uint32_t ranks) {
  if (collective == Collective::all_reduce) return in_two_shots("pairwise", Shares(ranks, 1), Association::pairwise);
  return in_one_shot("pairwise", collective, ranks, 0, Association::pairwise);
}

}  // namespace syntony
