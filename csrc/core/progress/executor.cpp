#include "core/progress/executor.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/kernels/kernels.hpp"
#include "core/kernels/vector_copy.hpp"
#include "core/sizes.hpp"

namespace syntony {
namespace {

constexpr std::size_t kScratchAlignment = 64;
// Chunks large enough to evict everything else bypass the caches; copies within a rank's memory do so earlier.
constexpr std::size_t kStreamedBytes = 8_MiB;
constexpr std::size_t kStreamedOwnBytes = 2_MiB;
// Chunks from this size on are received in place if the transport can. That costs less than the fastest second copy:
// between two hosts, all_gather of 16 and 64 MiB takes 5 to 7 % less time than through slots and past the caches where
// packets cost most of the time, and 17 to 25 % less where copies do.
constexpr std::size_t kExpectedBytes = 64_KiB;
// From here on, looking at all lanes in every turn costs more than it saves: all_gather of 64 KiB, us: 2 ranks with 64
// lanes each 20 and 17, 4 ranks with 192 lanes 236 and 150.
constexpr std::size_t kFewLanes = 32;
constexpr std::uint32_t kAhead = 4;  // frames, no more than every receiver has slots

std::size_t aligned(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

bool signals(const Agent& agent) {
  return std::ranges::any_of(
      agent.instructions, [](const Instruction& i) { return i.opcode == Opcode::signal || i.opcode == Opcode::wait; });
}

}  // namespace

std::size_t Execution::scratch_bytes(const PreparedProgram& program, std::uint32_t rank, const Call& call) {
  std::size_t bytes = 0;
  for (const auto [agent, space, chunk] : program.program().agent(rank).scratch) {
    bytes += aligned(program.range(chunk, call.blocks[program.block(chunk)].elements).count * call.element_bytes());
  }
  return bytes;
}

Execution::Execution(const PreparedProgram& program, std::uint32_t rank, const Call& call, std::span<std::byte> scratch,
                     const Wire& wire)
    : program_(program.program()),
      agent_(program_.agent(rank)),
      dtype_(call.dtype),
      op_(call.op),
      uneven_(!call.even || call.longest() == 0),
      element_bytes_(call.element_bytes()),
      wire_(wire),
      first_slot_{0, agent_.input.size(), agent_.input.size() + agent_.output.size()},
      lanes_(agent_.lanes.size()) {
  const std::span<const Block> blocks = call.blocks;
  slots_.reserve(first_slot_[2] + agent_.scratch.size());
  const std::size_t frame = wire.slot_bytes / element_bytes_;
  phases_ = program.phases(frame);
  const std::size_t longest = std::max<std::size_t>(1, frame / program.message_slots(phases_));
  const auto count_slices = [&](std::uint32_t chunk, std::size_t elements, std::size_t slice) {
    if (elements == 0) return;
    const std::size_t rounds = (elements + slice - 1) / slice;
    slices_ = std::max(slices_, static_cast<std::uint32_t>((rounds - 1) * phases_ + chunk % phases_ + 1));
  };
  const auto bind = [&](std::uint32_t chunk, std::byte* block, bool private_memory) {
    const ElementRange range = program.range(chunk, blocks[program.block(chunk)].elements);
    const std::size_t slice = program.slice(chunk, longest);
    count_slices(chunk, range.count, slice);
    slots_.push_back(
        {private_memory ? block : block + range.first * element_bytes_, range.count, slice, chunk % phases_});
  };
  for (const auto [agent, space, chunk] : agent_.input) {
    // The kernels take sources as const; slots have one type because output and scratch are sources too.
    bind(chunk, const_cast<std::byte*>(blocks[program.block(chunk)].input), false);
  }
  for (const auto [agent, space, chunk] : agent_.output) {
    bind(chunk, blocks[program.block(chunk)].output, false);
  }
  std::byte* room = scratch.data();
  for (const auto [agent, space, chunk] : agent_.scratch) {
    bind(chunk, room, true);
    room += aligned(slots_.back().elements * element_bytes_);
  }
  if (signals(agent_)) {  // signals carry no size: every rank must count slices equally, over all chunks
    for (std::uint32_t chunk = 0; chunk < program_.chunks.size(); ++chunk) {
      count_slices(chunk, program.range(chunk, blocks[program.block(chunk)].elements).count,
                   program.slice(chunk, longest));
    }
  }
  if (uneven_) slices_ = std::max(slices_, 1U);  // in slice 0 the ends of a message compare sizes
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
    if (slices_ == 0 || agent_.lanes[lane].empty()) {
      lanes_[lane].iteration = Lane::finished;
    } else {
      lanes_[lane].iteration = agent_.lanes[lane].front().skew;
      ++unfinished_lanes_;
    }
  }
}

Execution::~Execution() {
  if (done()) return;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (lanes_[l].expected > 0) receiver(agent_.lanes[l][lanes_[l].instruction]).forget_places();
  }
}

// Lanes take turns: what one has just sent, another may copy while it is in the caches, and no lane waits for all that
// another can do. Of many, most wait: one that has stopped is not looked at again in this step.
bool Execution::step(const Pace& pace) {
  const auto takes_turns = [&](const auto& turn) {
    std::uint32_t turns = 0;
    while (turns < pace.instructions && turn()) ++turns;
    return turns > 0;
  };
  if (lanes_.size() <= kFewLanes) {
    return takes_turns([&] {
      bool moved = false;
      for (std::size_t lane = 0; lane < lanes_.size(); ++lane) moved |= step(lane, pace.frames);
      return moved;
    });
  }
  going_.resize(lanes_.size());
  std::iota(going_.begin(), going_.end(), std::size_t{0});
  return takes_turns([&] {
    std::erase_if(going_, [&](std::size_t lane) { return !step(lane, pace.frames); });
    return !going_.empty();
  });
}

bool Execution::step(std::size_t l, std::uint32_t frames) {
  Lane& lane = lanes_[l];
  if (lane.iteration == Lane::finished) return false;
  const std::span<const Instruction> instructions = agent_.lanes[l];
  const Instruction& instruction = instructions[lane.instruction];
  const std::uint32_t slice = lane.iteration - instruction.skew;
  if (!ready(instruction, slice) || !perform(instruction, slice, frames)) {
    expect_ahead(lane, instructions);
    return false;
  }
  if (lane.expected > 0) --lane.expected;
  advance(lane, instructions);
  if (lane.iteration == Lane::finished) --unfinished_lanes_;
  return true;
}

void Execution::advance(Lane& lane, std::span<const Instruction> instructions) const {
  ++lane.instruction;
  if (lane.instruction < instructions.size() && instructions[lane.instruction].skew <= lane.iteration) return;
  ++lane.iteration;
  while (lane.first < instructions.size() && instructions[lane.first].skew + slices_ <= lane.iteration) ++lane.first;
  if (lane.first == instructions.size()) {
    lane.iteration = Lane::finished;
    return;
  }
  lane.instruction = lane.first;
  lane.iteration = std::max<std::uint32_t>(lane.iteration, instructions[lane.first].skew);
}

void Execution::expect_ahead(Lane& lane, std::span<const Instruction> instructions) const {
  const Instruction& first = instructions[lane.instruction];
  if (first.opcode != Opcode::recv || lane.expected == kAhead) return;
  if (bound(first.dst).elements * element_bytes_ < kExpectedBytes) return;
  std::array<const std::byte*, kAhead> places;
  Lane next = lane;
  std::uint32_t frames = 0;
  for (std::uint32_t ahead = 0; ahead < kAhead && next.iteration != Lane::finished; ++ahead) {
    const Instruction& instruction = instructions[next.instruction];
    const std::uint32_t slice = next.iteration - instruction.skew;
    const bool alike = instruction.opcode == Opcode::recv && instruction.recv_peer == first.recv_peer &&
                       instruction.channel == first.channel && instruction.count == 1;
    if (!alike || !ready(instruction, slice)) return;
    const Piece to = piece(instruction.dst, slice);
    const std::span<const std::byte*> before = std::span(places).first(frames);
    if (std::ranges::find(before, to.data) != before.end()) return;  // the earlier one must be here first
    if (to.elements > 0) {
      places[frames] = to.data;
      if (ahead >= lane.expected) {
        const std::uint64_t total = message_total(instruction.dst, 1);
        const FrameHeader expected = header(instruction, slice, to.elements * element_bytes_, total);
        receiver(instruction).expect(frames, expected, to.data);
      }
      ++frames;
    } else if (uneven_ && slice == 0) {
      return;
    }
    lane.expected = std::max(lane.expected, ahead + 1);
    advance(next, instructions);
  }
}

bool Execution::ready(const Instruction& instruction, std::uint32_t slice) const {
  for (const Dependency dependency : program_.dependencies_of(instruction)) {
    const Lane& other = lanes_[dependency.lane];
    const std::uint32_t iteration = slice + agent_.lanes[dependency.lane][dependency.instruction].skew;
    if (other.iteration < iteration || (other.iteration == iteration && other.instruction <= dependency.instruction))
      return false;
  }
  return true;
}

Execution::Piece Execution::piece(Slot slot, std::uint32_t slice) const {
  const BoundSlot& from = bound(slot);
  if (phases_ > 1) {
    if (slice % phases_ != from.phase) return {from.data, 0};
    slice /= phases_;
  }
  const std::size_t first = slice * from.slice;
  if (first >= from.elements) return {from.data, 0};
  return {from.data + first * element_bytes_, std::min(from.slice, from.elements - first)};
}

std::size_t Execution::message_elements(Slot first, std::uint32_t count, std::uint32_t slice) const {
  std::size_t elements = 0;
  for (std::uint32_t k = 0; k < count; ++k) elements += piece({first.space, first.index + k}, slice).elements;
  return elements;
}

std::uint64_t Execution::message_total(Slot first, std::uint32_t count) const {
  std::uint64_t elements = 0;
  for (std::uint32_t k = 0; uneven_ && k < count; ++k) {
    elements += bound({first.space, first.index + k}).elements;
  }
  return elements * element_bytes_;
}

Sender& Execution::sender(const Instruction& instruction) const {
  const auto peer = static_cast<std::uint32_t>(instruction.send_peer);
  return wire_.transports[peer]->sender(peer, instruction.channel, wire_.window);
}

Receiver& Execution::receiver(const Instruction& instruction) const {
  const auto peer = static_cast<std::uint32_t>(instruction.recv_peer);
  return wire_.transports[peer]->receiver(peer, instruction.channel, wire_.window);
}

FrameHeader Execution::header(const Instruction& instruction, std::uint32_t slice, std::size_t bytes,
                              std::uint64_t total) const {
  FrameHeader header = wire_.header;
  header.channel = static_cast<std::uint16_t>(instruction.channel);
  header.slice = slice;
  header.length = static_cast<std::uint32_t>(bytes);
  header.total = total;
  return header;
}

void Execution::check(const FrameHeader& found, const Instruction& instruction, const FrameHeader& expected) const {
  const bool alike = found.token == expected.token && found.group == expected.group &&
                     found.sequence == expected.sequence && found.fingerprint == expected.fingerprint &&
                     found.channel == expected.channel && found.slice == expected.slice &&
                     found.length == expected.length && found.total == expected.total;
  if (!alike) throw UnexpectedFrame(static_cast<std::uint32_t>(instruction.recv_peer), expected, found);
}

void Execution::reduce_locally(const Instruction& instruction, std::uint32_t slice) {
  constexpr std::size_t kFew = 64;
  std::array<const std::byte*, kFew> few;
  std::vector<const std::byte*> many;
  const std::size_t sources = 1 + instruction.operand_count;
  if (sources > kFew) many.resize(sources);
  const std::span<const std::byte*> pointers = sources > kFew ? std::span(many) : std::span(few).first(sources);

  for (std::uint32_t k = 0; k < instruction.count; ++k) {
    const auto at = [&](Slot first) { return piece({first.space, first.index + k}, slice); };
    const Piece dst = at(instruction.dst);
    if (dst.elements == 0) continue;
    pointers[0] = at(instruction.src).data;
    std::size_t source = 1;
    for (const Slot operand : program_.operands_of(instruction)) pointers[source++] = at(operand).data;
    reduce(dtype_, op_, dst.data, pointers, dst.elements);
  }
}

void Execution::place(Slot slot, Piece to, const std::byte* from, std::size_t streamed) const {
  const bool large = bound(slot).elements * element_bytes_ >= streamed;
  (large ? streaming_copy : vector_copy)(to.data, from, to.elements * element_bytes_);
}

// Performs one instruction on one slice; false if it cannot happen yet, and then nothing has changed.
bool Execution::perform(const Instruction& instruction, std::uint32_t slice, std::uint32_t frames) {
  const Opcode opcode = instruction.opcode;
  if (opcode == Opcode::nop) return true;
  if (opcode == Opcode::reduce) {
    reduce_locally(instruction, slice);
    return true;
  }
  if (opcode == Opcode::copy) {
    for (std::uint32_t k = 0; k < instruction.count; ++k) {
      const Piece dst = piece({instruction.dst.space, instruction.dst.index + k}, slice);
      const Piece src = piece({instruction.src.space, instruction.src.index + k}, slice);
      if (dst.elements > 0 && dst.data != src.data) {
        place({instruction.dst.space, instruction.dst.index + k}, dst, src.data, kStreamedOwnBytes);
      }
    }
    return true;
  }

  const bool combines =
      opcode == Opcode::recv_reduce || opcode == Opcode::recv_reduce_send || opcode == Opcode::recv_reduce_copy_send;
  const bool stores = opcode == Opcode::recv || opcode == Opcode::recv_copy_send || opcode == Opcode::recv_reduce ||
                      opcode == Opcode::recv_reduce_copy_send;
  const bool empty_message = opcode == Opcode::signal || opcode == Opcode::wait;
  const Slot shape = opcode == Opcode::send || combines ? instruction.src : instruction.dst;
  const std::size_t elements = empty_message ? 0 : message_elements(shape, instruction.count, slice);
  const bool compared = uneven_ && slice == 0;
  if (elements == 0 && !empty_message && !compared) return true;  // both ends know: nothing is sent
  const std::size_t bytes = elements * element_bytes_;
  const auto frame = [&] {
    return header(instruction, slice, bytes, empty_message ? 0 : message_total(shape, instruction.count));
  };

  Receiver* in = nullptr;
  const std::byte* message = nullptr;
  if (receives(opcode)) {
    in = &receiver(instruction);
    const FrameHeader* found = in->front();
    if (found == nullptr) return false;
    check(*found, instruction, frame());
    message = in->payload();
  }
  Sender* out = nullptr;
  std::byte* room = nullptr;
  if (sends(opcode)) {
    out = &sender(instruction);
    room = out->reserve(bytes);
    if (room == nullptr || (frames != ~0U && out->on_their_way() >= frames)) return false;
  }

  // What is sent is contiguous in this rank's memory, perhaps after summing, so the transport may send it from there.
  const bool whole = out != nullptr && instruction.count == 1 && (in == nullptr || stores) && !empty_message;
  std::size_t offset = 0;
  for (std::uint32_t k = 0; k < instruction.count && !empty_message; ++k) {
    const Piece shaped = piece({shape.space, shape.index + k}, slice);
    const std::size_t length = shaped.elements * element_bytes_;
    if (length == 0) continue;
    const Piece dst =
        stores ? piece({instruction.dst.space, instruction.dst.index + k}, slice) : Piece{room + offset, 0};
    if (combines) {
      const std::array<const std::byte*, 2> sources{message + offset, shaped.data};
      reduce(dtype_, op_, dst.data, sources, shaped.elements);
    } else if (in != nullptr && out == nullptr) {
      if (message + offset != dst.data) {  // else the transport has put it there
        place({instruction.dst.space, instruction.dst.index + k}, {dst.data, shaped.elements}, message + offset,
              kStreamedBytes);
      }
    } else if (in != nullptr) {
      std::memcpy(dst.data, message + offset, length);
    }
    if (out != nullptr && !whole && (in == nullptr || stores)) {
      std::memcpy(room + offset, in == nullptr ? shaped.data : dst.data, length);
    }
    offset += length;
  }

  if (out != nullptr) {
    if (whole) {
      const Slot from = stores ? instruction.dst : shape;
      [[maybe_unused]] const bool sent = out->send(frame(), piece(from, slice).data);  // there is room
    } else {
      out->commit(frame());
    }
    count(wire_.sent[static_cast<std::uint32_t>(instruction.send_peer)], bytes);
  }
  if (in != nullptr) in->release();
  return true;
}

std::vector<std::uint32_t> Execution::waiting_for() const {
  std::vector<std::uint32_t> peers;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    if (lanes_[l].iteration == Lane::finished) continue;
    const Instruction& instruction = agent_.lanes[l][lanes_[l].instruction];
    if (!ready(instruction, lanes_[l].iteration - instruction.skew)) continue;
    if (receives(instruction.opcode) && receiver(instruction).front() == nullptr) {
      peers.push_back(static_cast<std::uint32_t>(instruction.recv_peer));
    } else if (sends(instruction.opcode)) {
      peers.push_back(static_cast<std::uint32_t>(instruction.send_peer));
    }
  }
  std::ranges::sort(peers);
  const auto repeats = std::ranges::unique(peers);
  peers.erase(repeats.begin(), repeats.end());
  return peers;
}

}  // namespace syntony
