#include "core/selection/selector.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/kernels/dtype.hpp"
#include "core/process/log.hpp"
#include "core/program/algorithms/algorithms.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

// Measured between emulated hosts (3, 4, 6 and 8 hosts of 1 rank, 2 and 4 hosts of 2, 10 Gbit/s; `benchmarks runtime
// choices`); `syntony tune` finds better ones.
constexpr std::size_t kOneShotBytes = 64_KiB;   // what a rank may send extra to save hops
constexpr std::size_t kDoublingBytes = 16_KiB;  // what it may send in `recursive_doubling`
constexpr std::size_t kTinyBytes = 1_KiB;       // of a message, for which a hop more costs as much as a message more
constexpr std::size_t kGatheredBlock = 16_KiB;  // of a larger one, what a rank forwards had better come straight
constexpr std::size_t kSummedBlock = 12_KiB;    // the same where it is added up on the way
constexpr std::size_t kMessageBytes = 8_KiB;    // that take as long to send as one message more
constexpr std::size_t kSwapBytes = 128_KiB;  // of two ranks, which send nothing extra; shares of more are summed apart
constexpr std::uint32_t kFewHosts = 8;       // which can all send to one of them at once
constexpr std::size_t kShotChunk = 32_KiB;   // smaller chunks spend the 2 (n-1) messages of `two_shot` on latency
constexpr std::size_t kHalvedShotChunk = 128_KiB;  // the same where `rabenseifner` sends no more
constexpr std::size_t kRingChunk = 64_KiB;         // and the same two of `ring`
constexpr std::size_t kHalvedRingChunk = 256_KiB;
constexpr std::size_t kTwoLevelBytes = 512_KiB;  // between two hosts; with more hosts, every rank receives more

constexpr std::size_t kPairedBytes = 32_KiB;  // of two ranks per host, enough to count by how sockets carry them,
constexpr std::size_t kPairedMost = 1_MiB;    // and to hide that

constexpr auto kLargestElement = static_cast<std::uint32_t>(std::ranges::max(kDTypes, {}, &DTypeTraits::bytes).bytes);

/// The messages that a rank sends one after another in `recursive_doubling`: those beyond a power of two have partners.
std::uint32_t doublings(std::uint32_t ranks) {
  const std::uint32_t inner = std::bit_floor(ranks);
  return static_cast<std::uint32_t>(std::bit_width(inner)) - 1 + (inner < ranks ? 2 : 0);
}

/// The same of `pat` and `bruck`.
std::uint32_t relays(std::uint32_t ranks) { return static_cast<std::uint32_t>(std::bit_width(ranks - 1)); }

/// Blocks that `bruck` sends in an all_to_all: block i travels as many hops as i has bits.
std::uint32_t bruck_blocks(std::uint32_t ranks) {
  std::uint32_t blocks = 0;
  for (std::uint32_t distance = 1; distance < ranks; ++distance)
    blocks += static_cast<std::uint32_t>(std::popcount(distance));
  return blocks;
}

/// Two hosts of two ranks which are neighbours on the ring of all: then two of its four connections lead between hosts.
bool neighbours_in_pairs(std::span<const std::vector<std::uint32_t>> boxes) {
  const auto pair = [](const std::vector<std::uint32_t>& box) { return box.size() == 2 && (box[0] + box[1]) % 2 == 1; };
  return boxes.size() == 2 && std::ranges::all_of(boxes, pair);
}

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Error::Kind::invalid, sentence); }

std::string names_of(std::span<const Algorithm> table) {
  std::string names = "auto, " + std::string(kSharedAlgorithm) + ", " + std::string(kInNetworkAlgorithm);
  for (const Algorithm& algorithm : table) names += ", " + std::string(algorithm.name);
  return names;
}

}  // namespace

Selector::Selector(std::uint32_t ranks, std::vector<std::vector<std::uint32_t>> boxes, bool crowded)
    : ranks_(ranks), hosts_(boxes.size()), crowded_(crowded) {
  if (hosts_ > 1 && hosts_ < ranks_) boxes_ = std::move(boxes);
}

/// One host has no levels of its own: `hierarchical` makes some up. Ranks that are alone on theirs are not kept.
std::vector<std::vector<std::uint32_t>> Selector::boxes() const {
  if (!boxes_.empty() || hosts_ < ranks_ || ranks_ == 1) return boxes_;
  std::vector<std::vector<std::uint32_t>> alone(ranks_);
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) alone[rank] = {rank};
  return alone;
}

std::string_view Selector::Selection::name() const {
  if (way == Way::program) return program->program().name;
  return way == Way::shared ? kSharedAlgorithm : kInNetworkAlgorithm;
}

std::vector<std::string> Selector::names(Collective collective) {
  std::vector<std::string> names{std::string(kSharedAlgorithm)};
  if (collective == Collective::all_reduce) names.emplace_back(kInNetworkAlgorithm);
  for (const Algorithm& algorithm : algorithms()) {
    const auto& has = algorithm.collectives;
    if (std::ranges::find(has, collective) != has.end()) names.emplace_back(algorithm.name);
  }
  return names;
}

/// True if sending to every other rank at once, in one hop, takes no longer than `messages` one after another.
/// Processors spend microseconds on a message, as a wire does on a hop; if ranks share processors, nothing else counts.
bool Selector::one_hop_pays(std::uint32_t messages, std::size_t message_bytes) const {
  const std::uint32_t hops = crowded_ || message_bytes > kTinyBytes ? 0 : messages - 1;
  return ranks_ - 1 <= messages + hops;
}

/// For collectives of one block per pair of ranks, which `direct` sends in n-1 messages.
Selector::Choice Selector::relayed_or_direct(Collective collective, std::size_t bytes) const {
  constexpr std::string_view kWhy = "so few bytes that log2(n) messages, not n-1, count most";
  const std::uint32_t messages = relays(ranks_);
  const std::size_t block = bytes / ranks_;
  if (!one_hop_pays(messages, block)) {
    if (collective == Collective::all_gather && block <= kGatheredBlock) return {"bruck", kWhy};
    if (collective == Collective::reduce_scatter && block <= kSummedBlock) return {"pat", kWhy};
    if (collective == Collective::all_to_all) {
      const std::size_t extra = bruck_blocks(ranks_) - (ranks_ - 1);
      const std::size_t saved = ranks_ - 1 - messages;
      if (extra * block <= saved * kMessageBytes) return {"bruck", kWhy};
    }
  }
  return {"direct", "the usual one for this collective"};
}

Selector::Choice Selector::automatic(Collective collective, std::size_t bytes) const {
  if (collective == Collective::all_to_all && bytes == 0) return {"direct", "only each pair knows its size"};
  if (one_host()) return {std::string(kSharedAlgorithm), "all ranks share a host's memory"};
  const bool few = std::bit_width(ranks_ - 1) * bytes <= kDoublingBytes;
  if (collective == Collective::all_reduce && !shares_.empty() && !few) {
    return {"two_shot", "ranks have shares of their own"};
  }
  if (boxes_.size() > 1 && boxes_.size() < ranks_) {
    const std::size_t others = boxes_.size() - 1;
    if (collective == Collective::all_reduce && others * others * bytes <= kTwoLevelBytes) {
      return {"two_level", "some ranks are near each other; so few bytes that one hop between the others counts most"};
    }
    if (collective == Collective::all_to_all && crowded_ && bytes > kPairedBytes && bytes < kPairedMost &&
        neighbours_in_pairs(boxes_)) {
      return {"ring", "pairs of ranks share processors: each connection carries most one way, which costs them less"};
    }
    return {"hierarchical", hosts_ < ranks_ ? "hosts have several ranks each" : "some hosts are near each other"};
  }
  const bool small = (ranks_ - 1) * bytes <= kOneShotBytes;
  switch (collective) {
    case Collective::all_reduce:
      if (small && one_hop_pays(doublings(ranks_), bytes)) {
        return {"direct", "so few bytes that one hop counts most"};
      }
      if (ranks_ == 2 && bytes <= kSwapBytes) return {"direct", "two ranks; one hop"};
      if (few) return {"recursive_doubling", "few bytes: log2(n) hops count most"};
      if (ranks_ > 2 && ranks_ <= kFewHosts) {
        if (bytes < ranks_ * (std::has_single_bit(ranks_) ? kHalvedShotChunk : kShotChunk)) {
          return {"rabenseifner", "shares of one rank each would be too small"};
        }
        return {"two_shot", "many bytes, few hosts: every rank moves each only once, in two hops"};
      }
      if (bytes < ranks_ * (std::has_single_bit(ranks_) ? kHalvedRingChunk : kRingChunk)) {
        return {"rabenseifner", "a ring's chunks would be too small"};
      }
      return {"ring", "many bytes: every rank moves each only once"};
    case Collective::broadcast:
    case Collective::reduce:
      if (small) return {"direct", "few bytes"};
      return {"dbt", "on a wire, the root's alone would be the limit"};
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return relayed_or_direct(collective, bytes);
    default:
      return {"direct", "the usual one for this collective"};
  }
}

// Once per Program and power of two, so that a training run logs a few lines and not millions.
void Selector::tell(const Choice& choice, Collective collective, std::size_t bytes) {
  if (log_level() < LogLevel::info) return;
  const auto magnitude = static_cast<int>(std::bit_width(bytes > 0 ? bytes - 1 : 0));
  if (!told_.emplace(collective, choice.name, magnitude).second) return;
  write_log(LogLevel::info, std::string(name_of(collective)) + " of " + std::to_string(bytes) +
                                " bytes: " + choice.name + " (" + std::string(choice.why) + ")");
}

Selector::Choice Selector::resolved(Collective collective, std::uint32_t root, std::size_t bytes,
                                    const std::string& algorithm) const {
  // An all_to_all whose sizes only each pair knows cannot be chosen by size.
  const bool unknown = collective == Collective::all_to_all && bytes == 0;
  const auto found = ranges_.find({algorithm, collective});
  if (found == ranges_.end() || (unknown && algorithm == "auto")) {
    return algorithm == "auto" ? automatic(collective, bytes) : Choice{algorithm, "asked for by name"};
  }
  const std::vector<SizeRange>& ranges = found->second;
  const auto reaches = std::ranges::find_if(ranges, [bytes](const SizeRange& one) { return bytes <= one.last; });
  const SizeRange& range = reaches == ranges.end() ? ranges.back() : *reaches;
  if (algorithm == "auto") {
    const auto loaded = loaded_.find(range.algorithm);
    const bool elsewhere = loaded != loaded_.end() && loaded->second->program().root != root;
    if (elsewhere || range.algorithm == "auto") return automatic(collective, bytes);
  }
  return {range.algorithm, range.why};
}

std::pair<std::string, std::string> Selector::choice(Collective collective, std::uint32_t root, std::size_t bytes,
                                                     const std::string& algorithm) {
  const std::lock_guard lock(mutex_);
  const Choice choice = resolved(collective, root, bytes, algorithm);
  return {choice.name, std::string(choice.why)};
}

Selector::Selection Selector::select(Collective collective, std::uint32_t root, std::size_t bytes,
                                     const std::string& algorithm) {
  const std::lock_guard lock(mutex_);
  const auto resolve = [&] { return answer(resolved(collective, root, bytes, algorithm), collective, root, bytes); };
  if (algorithm != "auto") return resolve();
  const std::tuple question(collective, root, bytes);
  Recent& recent = recent_[(bytes / 8 + static_cast<std::size_t>(collective)) % recent_.size()];
  if (recent.question != question) recent = {question, resolve()};
  return recent.answer;
}

Selector::Selection Selector::select_own(Collective collective, std::uint32_t root, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return answer(automatic(collective, bytes), collective, root, bytes);
}

bool Selector::own_choice(Collective collective) {
  const std::lock_guard lock(mutex_);
  return shares_.empty() && !ranges_.contains({"auto", collective});
}

Selector::Selection Selector::select_shares(const std::vector<std::uint32_t>& shares) {
  const std::lock_guard lock(mutex_);
  if (last_shares_.first != shares) {
    last_shares_ = {shares, std::make_shared<PreparedProgram>(
                                build("two_shot", Collective::all_reduce, ranks_, 0, boxes(), shares))};
    write_log(LogLevel::info, "large all_reduces are two_shot with unequal shares, as network cards have failed");
  }
  return {last_shares_.second};
}

Selector::Selection Selector::answer(const Choice& choice, Collective collective, std::uint32_t root,
                                     std::size_t bytes) {
  tell(choice, collective, bytes);
  if (choice.name == kInNetworkAlgorithm) {
    if (collective != Collective::all_reduce) {
      refuse("algorithm in_network has no " + std::string(name_of(collective)));
    }
    for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
      if (rank < aggregation_.size() && !aggregation_[rank].empty()) continue;
      refuse("algorithm in_network needs an aggregator: SYNTONY_AGGREGATOR=HOST:PORT is not set at rank " +
             std::to_string(rank));
    }
    return {program_named("direct", collective, root), Selection::Way::in_network};
  }
  if (choice.name != kSharedAlgorithm) return {program_named(choice.name, collective, root)};
  if (!one_host())
    refuse(ranks_ == 1 ? "algorithm shared needs other ranks"
                       : "algorithm shared needs all ranks on one host; these are on " + std::to_string(hosts_));
  return {program_named("direct", collective, root), Selection::Way::shared};
}

std::shared_ptr<const PreparedProgram> Selector::program_named(const std::string& name, Collective collective,
                                                               std::uint32_t root) {
  if (const auto loaded = loaded_.find(name); loaded != loaded_.end()) {
    const Program& program = loaded->second->program();
    if (program.collective != collective) {
      refuse("the schedule " + name + " does " + std::string(name_of(program.collective)) + ", not " +
             std::string(name_of(collective)));
    }
    if (program.root != root) {
      refuse("the schedule " + name + " has root " + std::to_string(program.root) + ", not " + std::to_string(root));
    }
    return loaded->second;
  }
  const Key key{name, collective, root};
  std::shared_ptr<const PreparedProgram>& program = built_[key];
  if (!program) {
    const auto table = algorithms();
    const auto builder = std::ranges::find(table, name, &Algorithm::name);
    if (builder == table.end()) refuse("unknown algorithm " + name + ": available are " + names_of(table));
    if (std::ranges::find(builder->collectives, collective) == builder->collectives.end()) {
      refuse("algorithm " + name + " has no " + std::string(name_of(collective)));
    }
    program = std::make_shared<PreparedProgram>(build(name, collective, ranks_, root, boxes(), shares_));
  }
  return program;
}

void Selector::add(const std::string& name, std::shared_ptr<const Program> program, const StreamShape& shape) {
  if (program->ranks != ranks_) {
    refuse("the schedule " + name + " is for " + std::to_string(program->ranks) + " ranks, the group has " +
           std::to_string(ranks_));
  }
  if (program->one_sided()) {
    refuse("the schedule " + name + " uses peer_read or peer_write, which the CPU executor does not have");
  }
  if (program->channels() > shape.channels) {
    refuse("the schedule " + name + " uses " + std::to_string(program->channels()) + " channels; a group of " +
           std::to_string(ranks_) + " ranks has " + std::to_string(shape.channels));
  }
  if (program->fifo_depth > shape.depth) {
    refuse("the schedule " + name + " needs connections that hold " + std::to_string(program->fifo_depth) +
           " messages; ours hold " + std::to_string(shape.depth));
  }
  auto prepared = std::make_shared<PreparedProgram>(std::move(program));
  const std::uint32_t room = shape.slot_bytes / kLargestElement;
  if (const std::uint32_t alike = prepared->message_slots(prepared->phases(room)); alike > room) {
    refuse("the schedule " + name + " sends a chunk " + std::to_string(alike) +
           " times in one message; a slot of SYNTONY_SLOT_BYTES=" + std::to_string(shape.slot_bytes) + " takes " +
           std::to_string(room) + " of the largest elements");
  }
  const std::lock_guard lock(mutex_);
  loaded_[name] = std::move(prepared);
  recent_ = {};
}

void Selector::set_shares(std::vector<std::uint32_t> shares) {
  if (shares.size() != ranks_ || std::ranges::max(shares) == 0) {
    refuse("shares must be one for each of the " + std::to_string(ranks_) + " ranks, and one of them above 0");
  }
  const std::lock_guard lock(mutex_);
  shares_ = std::move(shares);
  if (std::ranges::adjacent_find(shares_, std::not_equal_to<>{}) == shares_.end()) shares_.clear();
  built_.clear();
  recent_ = {};
}

void Selector::set_levels(std::vector<std::vector<std::uint32_t>> levels) {
  std::vector<std::uint32_t> held;
  for (const std::vector<std::uint32_t>& level : levels) held.insert(held.end(), level.begin(), level.end());
  std::ranges::sort(held);
  std::vector<std::uint32_t> all(ranks_);
  std::iota(all.begin(), all.end(), 0U);
  if (held != all) refuse("levels must hold each of the " + std::to_string(ranks_) + " ranks once");
  const std::lock_guard lock(mutex_);
  boxes_ = std::move(levels);
  built_.clear();
  recent_ = {};
}

void Selector::set_aggregation(const std::vector<std::string>& ways) {
  const std::lock_guard lock(mutex_);
  aggregation_ = ways;
}

void Selector::set_size_ranges(const std::string& name, Collective collective, std::vector<SizeRange> ranges) {
  if (ranges.empty()) refuse("the table " + name + " has no algorithm for any size");
  const auto unordered = std::ranges::adjacent_find(ranges, std::greater_equal<>{}, &SizeRange::last);
  if (unordered != ranges.end()) {
    refuse("the table " + name + " must have ascending sizes, but after " + std::to_string(unordered->last) +
           " bytes comes " + std::to_string(std::next(unordered)->last));
  }
  const std::lock_guard lock(mutex_);
  ranges_[{name, collective}] = std::move(ranges);
  recent_ = {};
}

}  // namespace syntony
