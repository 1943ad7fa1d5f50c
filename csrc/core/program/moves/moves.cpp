#include "core/program/moves/moves.hpp"

#include <algorithm>

namespace syntony {

std::vector<Chunk> equal_chunks(Collective collective, std::uint32_t ranks, std::uint32_t shares) {
  std::vector<Chunk> chunks;
  for (std::uint32_t block = 0; block < block_count(collective, ranks); ++block) {
    chunks.insert(chunks.end(), shares, {.block = block, .weight = 1});
  }
  return chunks;
}

void copy_own(ProgramBuilder& builder) {
  for (std::uint32_t rank = 0; rank < builder.ranks(); ++rank) {
    builder.copy(rank, builder.output(rank, rank), builder.input(rank, rank));
  }
}

void move_all(ProgramBuilder& builder, std::vector<Move> moves, std::uint16_t channel) {
  const std::uint32_t ranks = builder.ranks();
  // Copies (shift 0) go last: nobody waits for them.
  const auto shift = [ranks](const Move& move) { return (move.to.rank + ranks - move.from.rank - 1) % ranks; };
  std::ranges::stable_sort(moves, {}, shift);
  for (const auto& [from, to] : moves) {
    if (from.rank == to.rank) {
      builder.copy(to.rank, to.slot, from.slot);
    } else {
      builder.transfer(from.rank, from.slot, to.rank, to.slot, channel);
    }
  }
}

namespace {

void reduce_pairwise(ProgramBuilder& builder, const Sum& sum, std::vector<Slot> parts) {
  while (parts.size() > 2) {
    std::vector<Slot> sums;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      const auto pair = std::span(parts).subspan(i, std::min<std::size_t>(2, parts.size() - i));
      if (pair.size() == 2) builder.reduce(sum.owner, sums.emplace_back(builder.scratch(sum.owner, sum.chunk)), pair);
      if (pair.size() == 1) sums.push_back(pair.front());
    }
    parts = std::move(sums);
  }
  builder.reduce(sum.owner, sum.dst, parts);
}

}  // namespace

void sum_all(ProgramBuilder& builder, std::span<const Sum> sums, Association association) {
  const std::uint32_t ranks = builder.ranks();
  struct Message {
    std::uint32_t shift = 0;
    std::size_t sum = 0, part = 0;
  };
  std::vector<Message> messages;
  std::vector<std::vector<Slot>> at_home;  // the parts of each sum, after arrival
  std::vector<bool> on_arrival;
  for (const Sum& sum : sums) {
    const auto is_local = [&](const Held& part) { return part.rank == sum.owner; };
    on_arrival.push_back(sum.parts.size() == 2 && !is_local(sum.parts[0]) && is_local(sum.parts[1]));
    auto& slots = at_home.emplace_back();
    for (const Held& part : sum.parts) {
      slots.push_back(part.slot);
      if (is_local(part)) continue;
      messages.push_back({(sum.owner + ranks - part.rank) % ranks, at_home.size() - 1, slots.size() - 1});
    }
  }
  std::ranges::stable_sort(messages, {}, &Message::shift);
  for (const Message& message : messages) {
    const Sum& sum = sums[message.sum];
    const Held& part = sum.parts[message.part];
    if (on_arrival[message.sum]) {
      builder.transfer_reduce(part.rank, part.slot, sum.owner, sum.dst, sum.parts[1].slot, sum.channel);
      continue;
    }
    const Slot landing = builder.scratch(sum.owner, sum.chunk);
    builder.transfer(part.rank, part.slot, sum.owner, landing, sum.channel);
    at_home[message.sum][message.part] = landing;
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (on_arrival[i]) continue;
    if (association == Association::pairwise) {
      reduce_pairwise(builder, sums[i], at_home[i]);
    } else {
      builder.reduce(sums[i].owner, sums[i].dst, at_home[i]);
    }
  }
}

void relay_all(ProgramBuilder& builder, std::span<const Route> routes) {
  std::vector<Slot> at;  // where each route's chunk is now
  std::size_t longest = 0;
  for (const Route& route : routes) {
    at.push_back(builder.input(route.path.front(), route.chunk));
    longest = std::max(longest, route.path.size());
  }
  for (std::size_t hop = 1; hop < longest; ++hop) {
    for (std::size_t i = 0; i < routes.size(); ++i) {
      const Route& route = routes[i];
      if (hop >= route.path.size()) continue;
      const Slot next = builder.place(route.path[hop], route.chunk);
      builder.transfer(route.path[hop - 1], at[i], route.path[hop], next, route.channel);
      at[i] = next;
    }
  }
  for (std::size_t i = 0; i < routes.size(); ++i) {
    const auto& [chunk, path, channel] = routes[i];
    if (path.size() == 1) builder.copy(path.front(), builder.output(path.front(), chunk), at[i]);
  }
}

}  // namespace syntony
