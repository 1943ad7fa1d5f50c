#include "core/one_host/shared_way.hpp"

#include <algorithm>
#include <limits>

#include "core/kernels/vector_copy.hpp"
#include "core/shm/shm_segment.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

/// Bytes of a block, but for `held`. From the first five on, ranks read their peers' buffers instead of copies that
/// stay in cache.
struct Limits {
  std::size_t piece;  // piece_bytes()
  std::size_t moved;
  std::size_t exchanged;      // all_to_all: every block has a reader of its own
  std::size_t gathered;       // all_gather: every rank reads the same blocks
  std::size_t added;          // sums of which each rank wants a part
  std::size_t added_for_all;  // all_reduce
  std::size_t one_shot;       // sums of two ranks: above this, reading only one's share pays off
  std::size_t streamed;       // from here on, copies to outputs bypass the caches,
  std::size_t held;           // if inputs and outputs of all ranks are together longer;
  std::size_t dealt;          // those of all_to_all from here on, and
  std::size_t moved_past;     // moves from the peers' buffers
  std::size_t turn;           // turn_bytes() of pieces of 4 KiB and more
  // What is tried beside the usual way: outputs past the caches where inputs and outputs of all ranks are together at
  // least so long (those of shorter ones stay in any cache), and through them where they are at most so long;
  std::size_t stream_tried;
  std::size_t cached_tried;
  std::size_t read_tried;   // the peers' buffers, for blocks from here on,
  std::size_t added_tried;  // and for sums
};

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

// Measured with inputs that are written before each call (`python -m syntony.benchmarks runtime choices`): reading them
// out of their writer's cache, and writing them again after peers have read them, costs more than copies through the
// cache. 2 and 4 ranks, 2 cores with 2 MiB of cache each: above these sizes, which no such cache holds, saving a copy
// pays off. Overwriting, in the nearest cache, lines that a peer has just read costs twice as much as writing lines one
// level further away (8 to 32 KiB, 2 ranks: 2.1 -> 1.4 us, 7.5 -> 3.6).
// Outputs past the caches leave these to the inputs, which are written again (Intel Xeon with AMX, 2 ranks, us from the
// peers' buffers, through the caches and past them: all_gather of 4 MiB 605 and 551, of 16 MiB 2,006 and 1,943,
// all_to_all 685 and 624, 2,226 and 2,032; but all_reduce of 4 MiB 1,012 and 1,230). Past the caches, an all_reduce of
// ordinary buffers goes through copies (2 and 4 ranks, ms, and from the peers' buffers: of 16 MiB 2.3 and 2.5, 9.9 and
// 9.7, of 32 MiB 4.6 and 6.0, 15.5 and 18.2, of 64 MiB 10 and 13.4, 28.5 and 36.7; registered buffers are faster).
constexpr Limits kByRegisters{.piece = 128_KiB,
                              .moved = 1_MiB,
                              .exchanged = 1_MiB,
                              .gathered = 1_MiB,
                              .added = 2_MiB,
                              .added_for_all = 8_MiB,
                              .one_shot = 64_KiB,
                              .streamed = 16_MiB,
                              .held = 0,
                              .dealt = 1_MiB,
                              .moved_past = 1_MiB,
                              .turn = 128_KiB,
                              .stream_tried = 4_MiB,
                              .cached_tried = kNever,
                              .read_tried = 1_MiB,
                              .added_tried = 1_MiB};
// Two such ranks, in fewer and longer rounds (us, sums everywhere in pieces of 128 KiB, and in shares of pieces of 256
// KiB: all_reduce of 256 KiB 25.4 and 23.9, of 512 KiB 54 and 48, of 1 MiB 133 and 122); four are up to 1.1 times as
// fast in shorter ones. What they read from the peers' buffers depends on whether inputs are written again before each
// call: through copies, and from the buffers, all_gather of 256 KiB 14.9 and 18.9 if so, else 15.7 and 8.7, of 512 KiB
// 29 and 35, else 31 and 16.
constexpr Limits kByRegistersOfTwo = [] {
  Limits longer = kByRegisters;
  longer.piece = longer.turn = 256_KiB;
  longer.read_tried = 128_KiB;
  return longer;
}();
// Copies by the string instruction, 2 cores with 1 MiB of cache each and 32 MiB shared. One-shot and two-shot, us: 64
// KiB 5.4 and 6.8, 128 KiB 9.5 and 11.5; where cores share no cache 10.0 and 9.5, 17.8 and 16.7. From the peers'
// buffers, and through copies to streamed outputs: all_gather of 64 MiB 8,700 and 7,500 us, all_to_all 8,700 and 7,400.
// What the shared cache holds, or nearly, is not streamed (Zen 5, us past the cache and through it: all_gather of 12
// MiB 690 and 450, of 16 MiB 950 and 810, all_to_all of 8 MiB 500 and 350, of 16 MiB 1,050 and 900; reduce_scatter of
// 24 MiB 1,200 and 1,430). An all_reduce of 16 MiB past the cache takes as long out of place, but 1.25 times as long in
// place (Zen 4). In pieces of 128 and 256 KiB: all_gather of 2 MiB 58 and 52 us, all_to_all 63 and 60, all_reduce of 4
// MiB 190 and 180, by 4 ranks 930 and 830. all_to_all from the peers' buffers, through copies, and through copies past
// the cache, with what writing the inputs again costs more after it: of 16 MiB 1,480, 850 and 880 us, of 64 MiB 4,700,
// 5,200 and 4,600; where writing from memory is half as fast 1,390, 1,410 and 1,190, 5,700, 5,900 and 5,150. Sums of
// what the system has read from the peers' buffers take 1.4 to 1.9 times as long as through copies, at any size;
// registered buffers pay off once sums go past the cache. Past the cache, all_gather of 4 MiB takes 360 instead of 180
// us, all_to_all 350 instead of 240.
constexpr Limits kByStringOfTwo{.piece = 256_KiB,
                                .moved = kNever,
                                .exchanged = kNever,
                                .gathered = kNever,
                                .added = kNever,
                                .added_for_all = kNever,
                                .one_shot = 128_KiB,
                                .streamed = 4_MiB,
                                .held = 64_MiB,
                                .dealt = 8_MiB,
                                .moved_past = 16_MiB,
                                .turn = 0,  // they swap
                                .stream_tried = 24_MiB,
                                .cached_tried = 64_MiB,
                                .read_tried = 2_MiB,
                                .added_tried = 16_MiB};
// 4 ranks on these 2 cores, us from the peers' buffers and through copies: all_to_all of 64 MiB 18,000 and 26,500,
// all_reduce of 8 MiB 5,200 and 3,400, of 16 MiB 10,000 and 7,300, of 64 MiB 35,800 and 25,700. They rotate through as
// much together (1 MiB each instead of 256 KiB: all_gather of 256 KiB 65 instead of 45 us).
// From the peers' buffers and past the caches, all_to_all of 8 MiB takes 1,690 instead of 2,090 us; of 4 MiB 1,040
// instead of 500 where what peers have read is slow to be written again, else as long.
constexpr Limits kByString{.piece = 256_KiB,
                           .moved = 8_MiB,
                           .exchanged = 2_MiB,
                           .gathered = 64_MiB,
                           .added = 32_MiB,
                           .added_for_all = kNever,
                           .one_shot = 32_KiB,
                           .streamed = 4_MiB,
                           .held = 0,
                           .dealt = 1_MiB,
                           .moved_past = 16_MiB,
                           .turn = 256_KiB,
                           .stream_tried = 24_MiB,
                           .cached_tried = 64_MiB,
                           .read_tried = 1_MiB,
                           .added_tried = 16_MiB};
// Sums of blocks large enough to evict everything else, read from their owner's buffer, reach outputs past the caches.
constexpr std::size_t kReferenceStreamed = 16_MiB;
// Of a block: shorter ones are moved before another way could save anything.
constexpr std::size_t kTriedFrom = 128_KiB;
// Bytes that more than two ranks contribute to a sum together: the same for them.
constexpr std::size_t kOneShotOfMany = 128_KiB;

static_assert(std::max(kByRegistersOfTwo.turn, kByString.turn) <= StageBuffer::kStageBytes);
static_assert(kByString.piece + 2 * kMostRanksOfHost * kCacheLine <= StageBuffer::kStageBytes);

const Limits& limits(std::uint32_t ranks) {
  if (copies_by_string()) return ranks > 2 ? kByString : kByStringOfTwo;
  return ranks > 2 ? kByRegisters : kByRegistersOfTwo;
}

SharedWay staged_way(Collective collective, std::uint32_t ranks, std::size_t bytes) {
  const bool sums_one_block = collective == Collective::all_reduce || collective == Collective::reduce;
  // With two ranks, two-shot reads as much, in more steps; but it shows half.
  const bool few = ranks > 2 ? bytes * ranks <= kOneShotOfMany : bytes <= limits(ranks).one_shot;
  const bool shares = sums_one_block && !few;
  return shares ? SharedWay::two_shot : SharedWay::exchange;
}

/// Of inputs and outputs of all ranks. `bytes`: of the longest block.
std::size_t bytes_of_all(Collective collective, std::uint32_t ranks, std::size_t bytes) {
  const CollectiveFacts& facts = facts_of(collective);
  const std::size_t blocks = (facts.by_destination ? ranks : 1) * std::size_t{facts.root_gives ? 1 : ranks} +
                             (facts.by_source ? ranks : 1) * std::size_t{facts.root_takes ? 1 : ranks};
  return bytes * blocks;
}

/// Whether outputs bypass the caches if nothing is known.
bool usually_streams(SharedWay way, Collective collective, std::uint32_t ranks, std::size_t bytes) {
  const Limits& from = limits(ranks);
  if (collective == Collective::all_to_all) return bytes >= from.dealt;
  const bool sums = facts_of(collective).reduces;
  if (way == SharedWay::reference) return bytes >= (sums ? kReferenceStreamed : from.moved_past);
  return bytes >= from.streamed && bytes_of_all(collective, ranks, bytes) > from.held;
}

}  // namespace

SharedWay shared_way(Collective collective, std::uint32_t ranks, std::size_t bytes, bool readable) {
  const bool sums = facts_of(collective).reduces;
  const Limits& from = limits(ranks);
  std::size_t least = sums ? from.added : from.moved;
  if (collective == Collective::all_reduce) least = from.added_for_all;
  if (collective == Collective::all_to_all) least = from.exchanged;
  if (collective == Collective::all_gather) least = from.gathered;
  // With `reduce`, ranks without a result have no buffer for their share of the sum.
  const bool refers = readable && collective != Collective::reduce && bytes >= least;
  return refers ? SharedWay::reference : staged_way(collective, ranks, bytes);
}

SharedChoice usual_choice(Collective collective, std::uint32_t ranks, std::size_t bytes, bool readable) {
  const SharedWay way = shared_way(collective, ranks, bytes, readable);
  return {way, usually_streams(way, collective, ranks, bytes)};
}

// Every rank must take part in every round to tell the others what it has measured.
bool has_choices(Collective collective, std::size_t bytes) {
  return bytes >= kTriedFrom && !facts_of(collective).rooted();
}

// Every choice costs tries: the opposite of both, the way and what outputs do, has hardly ever been the fastest.
std::vector<SharedChoice> shared_choices(Collective collective, std::uint32_t ranks, std::size_t bytes, bool readable) {
  const SharedChoice usual = usual_choice(collective, ranks, bytes, readable);
  std::vector<SharedChoice> choices{usual};
  if (!has_choices(collective, bytes)) return choices;
  const Limits& from = limits(ranks);
  const std::size_t all = bytes_of_all(collective, ranks, bytes);
  if (usual.streams ? all <= from.cached_tried : all >= from.stream_tried) {
    choices.push_back({usual.way, !usual.streams});
  }
  const bool refers = usual.way == SharedWay::reference;
  const bool reads = readable && bytes >= (facts_of(collective).reduces ? from.added_tried : from.read_tried);
  if (!refers && !reads) return choices;
  const SharedWay other = refers ? staged_way(collective, ranks, bytes) : SharedWay::reference;
  // An all_reduce that would read ordinary buffers past the caches is copied past them as it is (reference_steps.cpp).
  const bool known = refers && usual.streams && collective == Collective::all_reduce;
  choices.push_back({other, usually_streams(other, collective, ranks, bytes) && all >= from.stream_tried && !known});
  return choices;
}

// Zen 5, 2 ranks, us without and with: all_gather of 16 KiB 1.18 and 1.02, of 64 KiB 2.2 and 1.8, of 256 KiB 5.4 and
// 5.1, all_reduce of 64 KiB 3.8 and 3.2; where cores share no cache, all_gather of 64 KiB 3.4 and 2.6, of 256 KiB 10.9
// and 7.9, of 4 MiB 150 and 130, all_reduce of 64 KiB 8.2 and 5.4, of 4 MiB 304 and 219, of 64 MiB 9,900 and 6,100. To
// rotate as well is slower (64 KiB 2.1). 4 ranks on 2 cores, every pair swapping: no difference.
bool swaps_stages(std::uint32_t ranks) { return ranks == 2 && lines_migrate(); }

std::size_t piece_bytes(std::uint32_t ranks) { return limits(ranks).piece; }

// A store buffer holds shorter pieces, so they need not be far from each other.
std::size_t turn_bytes(std::uint32_t ranks, std::size_t bytes) {
  if (swaps_stages(ranks)) return 0;
  return bytes < 4_KiB ? 128_KiB : limits(ranks).turn;
}

std::string_view name_of(SharedWay way) {
  switch (way) {
    case SharedWay::exchange:
      return "exchange";
    case SharedWay::two_shot:
      return "two-shot";
    case SharedWay::reference:
      break;
  }
  return "reference";
}

}  // namespace syntony
