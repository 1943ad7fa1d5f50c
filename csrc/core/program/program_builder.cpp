#include "core/program/program_builder.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "core/program/collective.hpp"

namespace syntony {
namespace {

std::string slot_name(Slot slot) {
  static constexpr std::string_view kNames[] = {"input", "output", "scratch"};
  return std::string(kNames[static_cast<std::size_t>(slot.space)]) + "[" + std::to_string(slot.index) + "]";
}

std::string rank_name(std::uint32_t rank) { return "rank " + std::to_string(rank); }

/// `count` slots starting at `first`.
std::vector<Slot> run_of(Slot first, std::uint32_t count) {
  std::vector<Slot> slots;
  for (std::uint32_t k = 0; k < count; ++k) slots.push_back({first.space, first.index + k});
  return slots;
}

Instruction send_to(std::uint32_t peer, Slot src, std::uint16_t channel, std::uint32_t count) {
  Instruction instruction;
  instruction.opcode = Opcode::send;
  instruction.src = src;
  instruction.count = count;
  instruction.send_peer = static_cast<std::int32_t>(peer);
  instruction.channel = channel;
  return instruction;
}

Instruction receive_from(std::uint32_t peer, Opcode opcode, Slot dst, Slot operand, std::uint16_t channel,
                         std::uint32_t count) {
  Instruction instruction;
  instruction.opcode = opcode;
  instruction.dst = dst;
  instruction.src = operand;
  instruction.count = count;
  instruction.recv_peer = static_cast<std::int32_t>(peer);
  instruction.channel = channel;
  return instruction;
}

}  // namespace

ProgramBuilder::ProgramBuilder(std::string name, Collective collective, std::uint32_t ranks, std::uint32_t root,
                               std::vector<Chunk> chunks)
    : name_(std::move(name)), collective_(collective), root_(root), chunks_(std::move(chunks)), sites_(ranks) {
  static_cast<void>(finish());  // rejects bad ranks, roots and chunks before any slot is created
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    Site& here = sites_[rank];
    for (std::uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
      const std::uint32_t block = chunks_[chunk].block;
      const bool starts = starts_with(collective, ranks, root, rank, block);
      const bool ends = ends_with(collective, ranks, root, rank, block);
      if (!starts && !ends) continue;
      const auto location = static_cast<std::uint32_t>(here.locations.size());
      here.locations.emplace_back();
      if (starts) here.slots[0].push_back({.chunk = chunk, .location = location, .content = Content::value});
      if (ends) here.slots[1].push_back({.chunk = chunk, .location = location});
    }
  }
}

Slot ProgramBuilder::input(std::uint32_t rank, std::uint32_t chunk) const { return find(rank, chunk, Space::input); }
Slot ProgramBuilder::output(std::uint32_t rank, std::uint32_t chunk) const { return find(rank, chunk, Space::output); }

Slot ProgramBuilder::scratch(std::uint32_t rank, std::uint32_t chunk) {
  if (chunk >= chunks_.size()) {
    throw std::invalid_argument("there is no chunk " + std::to_string(chunk) + "; there are " +
                                std::to_string(chunks_.size()));
  }
  Site& here = site(rank);
  const auto location = static_cast<std::uint32_t>(here.locations.size());
  here.locations.emplace_back();
  auto& slots = here.slots[static_cast<std::size_t>(Space::scratch)];
  slots.push_back({.chunk = chunk, .location = location});
  return {Space::scratch, static_cast<std::uint32_t>(slots.size() - 1)};
}

Slot ProgramBuilder::place(std::uint32_t rank, std::uint32_t chunk) {
  const bool ends = chunk < chunks_.size() && ends_with(collective_, ranks(), root_, rank, chunks_[chunk].block);
  return ends ? output(rank, chunk) : scratch(rank, chunk);
}

void ProgramBuilder::copy(std::uint32_t rank, Slot dst, Slot src) { reduce(rank, dst, std::span(&src, 1)); }

void ProgramBuilder::reduce(std::uint32_t rank, Slot dst, std::span<const Slot> sources) {
  if (sources.empty()) throw std::invalid_argument(rank_name(rank) + " reduces nothing; it needs a source");
  std::vector<Content> parts;
  for (const Slot source : sources) {
    parts.push_back(read(rank, source));
    check_write(rank, dst, state(rank, source).chunk);
  }
  const bool is_copy = sources.size() == 1;
  const Content written = is_copy ? parts.front() : sum_of(parts);
  Instruction instruction;
  instruction.opcode = is_copy ? Opcode::copy : Opcode::reduce;
  instruction.dst = dst;
  instruction.src = sources.front();
  append(rank, {Direction::local, 0, 0}, instruction, sources, std::span(&dst, 1), std::span(&written, 1),
         sources.subspan(1));
}

void ProgramBuilder::transfer(std::uint32_t src_rank, Slot src, std::uint32_t dst_rank, Slot dst, std::uint16_t channel,
                              std::uint32_t count) {
  if (src_rank == dst_rank) throw std::invalid_argument(rank_name(src_rank) + " sends to itself; copy instead");
  const std::vector<Slot> sources = run_of(src, count), targets = run_of(dst, count);
  std::vector<Content> message;
  for (std::uint32_t k = 0; k < count; ++k) {
    message.push_back(read(src_rank, sources[k]));
    check_write(dst_rank, targets[k], state(src_rank, sources[k]).chunk);
  }
  append(src_rank, {Direction::send, dst_rank, channel}, send_to(dst_rank, src, channel, count), sources, {}, {});
  append(dst_rank, {Direction::recv, src_rank, channel}, receive_from(src_rank, Opcode::recv, dst, {}, channel, count),
         {}, targets, message);
}

void ProgramBuilder::transfer_reduce(std::uint32_t src_rank, Slot src, std::uint32_t dst_rank, Slot dst, Slot operand,
                                     std::uint16_t channel, std::uint32_t count) {
  if (src_rank == dst_rank) throw std::invalid_argument(rank_name(src_rank) + " sends to itself; reduce instead");
  const std::vector<Slot> sources = run_of(src, count), targets = run_of(dst, count), operands = run_of(operand, count);
  std::vector<Content> sums;
  for (std::uint32_t k = 0; k < count; ++k) {
    const Content parts[] = {read(src_rank, sources[k]), read(dst_rank, operands[k])};
    check_write(dst_rank, targets[k], state(src_rank, sources[k]).chunk);
    check_write(dst_rank, targets[k], state(dst_rank, operands[k]).chunk);
    sums.push_back(sum_of(parts));
  }
  append(src_rank, {Direction::send, dst_rank, channel}, send_to(dst_rank, src, channel, count), sources, {}, {});
  append(dst_rank, {Direction::recv, src_rank, channel},
         receive_from(src_rank, Opcode::recv_reduce, dst, operand, channel, count), operands, targets, sums);
}

void ProgramBuilder::append(std::uint32_t rank, std::uint32_t lane, const Instruction& instruction,
                            std::span<const Slot> operands) {
  const OpcodeFacts& facts = facts_of(instruction.opcode);
  if (facts.one_sided || (!facts.reads && !facts.writes)) {
    throw std::invalid_argument("a " + std::string(name_of(instruction.opcode)) +
                                " moves no data between slots and messages; it cannot be appended");
  }
  std::vector<Part> parts(instruction.count);
  if (receives(instruction.opcode)) parts = take_message(rank, instruction);
  std::vector<Slot> sources, targets;
  std::vector<Content> written;
  for (std::uint32_t k = 0; k < instruction.count; ++k) {
    const auto nth = [k](Slot first) { return Slot{first.space, first.index + k}; };
    std::vector<Content> terms;
    if (receives(instruction.opcode)) terms.push_back(parts[k].content);
    const auto take = [&](Slot slot) {
      terms.push_back(read(rank, slot));
      const std::uint32_t chunk = state(rank, slot).chunk;
      if (terms.size() == 1) parts[k].chunk = chunk;
      if (chunk != parts[k].chunk) {
        throw std::invalid_argument(rank_name(rank) + " adds chunk " + std::to_string(chunk) + " to chunk " +
                                    std::to_string(parts[k].chunk));
      }
      sources.push_back(slot);
    };
    if (facts.reads) take(nth(instruction.src));
    for (const Slot operand : operands) take(nth(operand));
    parts[k].content = terms.size() == 1 ? terms.front() : sum_of(terms);
    if (facts.writes) {
      check_write(rank, nth(instruction.dst), parts[k].chunk);
      targets.push_back(nth(instruction.dst));
      written.push_back(parts[k].content);
    }
  }
  append(rank, {Direction::chosen, lane, 0}, instruction, sources, targets, written, operands);
  if (sends(instruction.opcode)) {
    auto& messages = in_flight_[{rank, static_cast<std::uint32_t>(instruction.send_peer), instruction.channel}];
    messages.push_back(std::move(parts));
    fifo_depth_ = std::max(fifo_depth_, static_cast<std::uint32_t>(messages.size()));
  }
}

void ProgramBuilder::skew(std::uint16_t slices) {
  if (slices < skew_) {
    throw std::invalid_argument("skew " + std::to_string(slices) + " comes after skew " + std::to_string(skew_) +
                                "; it never decreases");
  }
  skew_ = slices;
}

Program ProgramBuilder::finish() const {
  Program program;
  program.name = name_;
  program.collective = collective_;
  program.root = root_;
  program.chunks = chunks_;
  program.fifo_depth = fifo_depth_;
  program.in_place = in_place_;
  program.rounds_per_hop = rounds_per_hop_;
  for (const Site& site : sites_) {
    AgentDraft agent;
    const std::array<std::vector<std::uint32_t>*, 3> spaces{&agent.input, &agent.output, &agent.scratch};
    for (std::size_t space = 0; space < spaces.size(); ++space) {
      for (const SlotState& slot : site.slots[space]) spaces[space]->push_back(slot.chunk);
    }
    for (const Lane& lane : site.lanes) agent.lanes.push_back(lane.drafts);
    program.add(agent);
  }
  program.validate();
  return program;
}

ProgramBuilder::Site& ProgramBuilder::site(std::uint32_t rank) {
  if (rank >= sites_.size()) {
    throw std::invalid_argument("there is no rank " + std::to_string(rank) + "; there are " +
                                std::to_string(sites_.size()));
  }
  return sites_[rank];
}

ProgramBuilder::SlotState& ProgramBuilder::state(std::uint32_t rank, Slot slot) {
  auto& slots = site(rank).slots[static_cast<std::size_t>(slot.space)];
  if (slot.index >= slots.size()) {
    throw std::invalid_argument(rank_name(rank) + " has no slot " + slot_name(slot) + "; it has " +
                                std::to_string(slots.size()) + " of that space");
  }
  return slots[slot.index];
}

Slot ProgramBuilder::find(std::uint32_t rank, std::uint32_t chunk, Space space) const {
  if (rank < sites_.size()) {
    const auto& slots = sites_[rank].slots[static_cast<std::size_t>(space)];
    const auto found = std::ranges::lower_bound(slots, chunk, {}, &SlotState::chunk);
    if (found != slots.end() && found->chunk == chunk)
      return {space, static_cast<std::uint32_t>(found - slots.begin())};
  }
  throw std::invalid_argument(rank_name(rank) + " has no chunk " + std::to_string(chunk) + " in its " +
                              (space == Space::input ? "input" : "output") + " (" + std::string(name_of(collective_)) +
                              " on " + std::to_string(ranks()) + " ranks, root " + std::to_string(root_) + ")");
}

/// What `slot` holds; records if an in-place call would find something else there.
ProgramBuilder::Content ProgramBuilder::read(std::uint32_t rank, Slot slot) {
  const SlotState& from = state(rank, slot);
  if (from.content == Content::nothing) {
    throw std::invalid_argument(rank_name(rank) + " reads " + slot_name(slot) + " before anything is written there");
  }
  if (slot.space == Space::input && site(rank).locations[from.location].overwritten) in_place_ = false;
  return from.content;
}

void ProgramBuilder::check_write(std::uint32_t rank, Slot dst, std::uint32_t chunk) {
  const SlotState& to = state(rank, dst);
  if (dst.space == Space::input) {
    throw std::invalid_argument(rank_name(rank) + " writes " + slot_name(dst) + "; the input belongs to the caller");
  }
  if (to.chunk != chunk) {
    throw std::invalid_argument(rank_name(rank) + " moves chunk " + std::to_string(chunk) + " into " + slot_name(dst) +
                                ", which holds chunk " + std::to_string(to.chunk));
  }
}

ProgramBuilder::Content ProgramBuilder::sum_of(std::span<const Content> parts) {
  if (std::ranges::find(parts, Content::sum) != parts.end()) rounds_per_hop_ = true;
  return Content::sum;
}

/// Takes the message that the instruction receives from its connection.
std::vector<ProgramBuilder::Part> ProgramBuilder::take_message(std::uint32_t rank, const Instruction& instruction) {
  auto& messages = in_flight_[{static_cast<std::uint32_t>(instruction.recv_peer), rank, instruction.channel}];
  if (messages.empty() || messages.front().size() != instruction.count) {
    throw std::invalid_argument(
        rank_name(rank) + " receives " + std::to_string(instruction.count) + " slots from rank " +
        std::to_string(instruction.recv_peer) + ", which sent " +
        (messages.empty() ? "nothing more" : std::to_string(messages.front().size()) + " in its next message"));
  }
  std::vector<Part> message = std::move(messages.front());
  messages.pop_front();
  return message;
}

/// Appends to the lane of `key`, after all conflicting accesses to the same locations. `sources` and `targets` are all
/// slots that are read and written; target k receives `written[k]`.
void ProgramBuilder::append(std::uint32_t rank, LaneKey key, const Instruction& instruction,
                            std::span<const Slot> sources, std::span<const Slot> targets,
                            std::span<const Content> written, std::span<const Slot> operands) {
  Site& here = site(rank);
  const auto [entry, is_new] = here.lane_of.try_emplace(key, static_cast<std::uint32_t>(here.lanes.size()));
  if (is_new) here.lanes.emplace_back();
  const std::uint32_t lane_index = entry->second;
  Lane& lane = here.lanes[lane_index];
  const Dependency self{lane_index, static_cast<std::uint32_t>(lane.drafts.size())};

  std::map<std::uint32_t, std::uint32_t> needed;  // other lane -> number of its instructions that must be done
  const auto need = [&](Dependency on) {
    if (on.lane == lane_index || lane.waited[on.lane] > on.instruction) return;
    needed[on.lane] = std::max(needed[on.lane], on.instruction + 1);
  };
  for (const Slot source : sources) {
    const Location& location = here.locations[state(rank, source).location];
    if (location.writer) need(*location.writer);
  }
  for (const Slot target : targets) {
    const Location& location = here.locations[state(rank, target).location];
    for (const Dependency reader : location.readers) need(reader);
    if (location.readers.empty() && location.writer) need(*location.writer);  // readers have waited for the writer
  }

  for (const Slot source : sources) here.locations[state(rank, source).location].readers.push_back(self);
  for (std::size_t k = 0; k < targets.size(); ++k) {
    SlotState& to = state(rank, targets[k]);
    Location& location = here.locations[to.location];
    const bool same_place = instruction.opcode == Opcode::copy && state(rank, sources[k]).location == to.location;
    if (!same_place) location.overwritten = true;  // such a copy does nothing in place
    location.writer = self;
    location.readers.clear();
    to.content = written[k];
  }

  Draft& draft = lane.drafts.emplace_back();
  draft.instruction = instruction;
  draft.instruction.skew = skew_;
  draft.operands.assign(operands.begin(), operands.end());
  for (const auto& [other, done] : needed) {
    draft.dependencies.push_back({other, done - 1});
    lane.waited[other] = done;
  }
}

}  // namespace syntony
