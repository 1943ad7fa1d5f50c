#include "core/group/clock_offset.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "core/group/communicator.hpp"
#include "core/recorder/recorder.hpp"

namespace syntony {
namespace {

constexpr std::uint64_t kTag = std::numeric_limits<std::uint64_t>::max();
constexpr int kQuestions = 8;

void say(Communicator& group, std::uint32_t rank, std::int64_t time) {
  group.send(reinterpret_cast<const std::byte*>(&time), sizeof(time), rank, kTag);
}

std::int64_t hear(Communicator& group, std::uint32_t rank) {
  std::int64_t time = 0;
  group.receive(reinterpret_cast<std::byte*>(&time), sizeof(time), static_cast<int>(rank), kTag);
  return time;
}

/// How far `rank`'s clock is ahead of ours.
std::int64_t ask(Communicator& group, std::uint32_t rank) {
  std::int64_t soonest = std::numeric_limits<std::int64_t>::max(), offset = 0;
  for (int question = 0; question < kQuestions; ++question) {
    const std::int64_t asked = nanoseconds_now();
    say(group, rank, asked);
    const std::int64_t theirs = hear(group, rank);
    const std::int64_t heard = nanoseconds_now();
    if (heard - asked >= soonest) continue;
    soonest = heard - asked;
    offset = theirs - (asked + soonest / 2);
  }
  return offset;
}

void answer(Communicator& group, std::uint32_t rank, std::int64_t offset) {
  for (int question = 0; question < kQuestions; ++question) {
    static_cast<void>(hear(group, rank));
    say(group, rank, nanoseconds_now() + offset);
  }
}

}  // namespace

std::int64_t clock_offset_to_rank_0(Communicator& group) {
  const auto& boxes = group.boxes();
  if (boxes.size() == 1) return 0;
  const auto mine =
      std::ranges::find_if(boxes, [&](const auto& box) { return std::ranges::find(box, group.rank()) != box.end(); });
  if (group.rank() != mine->front()) return hear(group, mine->front());
  const auto box = static_cast<std::size_t>(mine - boxes.begin());
  const std::int64_t offset = box == 0 ? 0 : ask(group, boxes[box & (box - 1)].front());
  const std::size_t lowest = box == 0 ? std::bit_ceil(boxes.size()) : box & (~box + 1);
  for (std::size_t step = lowest / 2; step > 0; step /= 2) {
    if (box + step < boxes.size()) answer(group, boxes[box + step].front(), offset);
  }
  for (const std::uint32_t rank : *mine) {
    if (rank != group.rank()) say(group, rank, offset);
  }
  return offset;
}

}  // namespace syntony
