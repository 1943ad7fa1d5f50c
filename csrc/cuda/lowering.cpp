#include "cuda/lowering.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "core/kernels/kernels.hpp"
#include "cuda/movements.hpp"

namespace syntony::cuda {
namespace {

constexpr std::size_t kScratchAlignment = 128;
constexpr std::size_t kGrain = 16;                  // elements: shares and slices begin at multiples of it
constexpr std::size_t kWorthAnInstance = 64 << 10;  // bytes of the heaviest chunk

std::size_t aligned(std::size_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

std::vector<std::size_t> scratch_offsets(const PreparedProgram& program, std::uint32_t rank, std::size_t element_bytes,
                                         std::span<const std::size_t> elements, const std::vector<bool>& in_use) {
  std::vector<std::size_t> offsets{0};
  const std::span<const SlotRow> scratch = program.program().agent(rank).scratch;
  for (std::size_t i = 0; i < scratch.size(); ++i) {
    const std::uint32_t chunk = scratch[i].chunk;
    const std::size_t count = program.range(chunk, elements[program.block(chunk)]).count;
    offsets.push_back(offsets.back() + (in_use[i] ? aligned(count * element_bytes) : 0));
  }
  return offsets;
}

class Lowering {
 public:
  Lowering(const PreparedProgram& prepared, std::uint32_t rank, DType dtype, ReduceOp op,
           std::span<const std::size_t> elements, const ArenaShape& shape, const LoweringOptions& options)
      : prepared_(prepared),
        program_(prepared.program()),
        rank_(rank),
        element_bytes_(size_of(dtype)),
        elements_(elements),
        shape_(shape),
        options_(options) {
    form_.dtype = dtype;
    form_.op = op;
    form_.protocol = options.protocol;
    form_.bulk = options.bulk;
  }

  KernelForm run() && {
    check_program();
    movements_ = movements_of(program_, rank_);
    touched_ = touched_by(program_, rank_);
    for (std::uint32_t peer = 0; peer < program_.ranks; ++peer) {
      if (peer == rank_) continue;
      const std::vector<std::uint32_t> theirs = touched_by(program_, peer);
      if (std::ranges::find(theirs, rank_) != theirs.end()) touching_.push_back(peer);
    }
    form_.touches_peers = !touched_.empty();
    handshakes_ = !touched_.empty() || !touching_.empty();
    form_.instances = choose_instances();
    set_slices();
    scratch_ = scratch_offsets(prepared_, rank_, element_bytes_, elements_, movements_.scratch_in_use);
    form_.scratch_bytes = scratch_.back();
    for (std::uint32_t instance = 0; instance < form_.instances; ++instance) add_instance(instance);
    if (handshakes_) add_handshake();
    check_lanes();
    return std::move(form_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw std::invalid_argument("the program " + program_.name + " cannot run on a GPU here: " + what);
  }

  void check_program() const {
    if (program_.ranks != shape_.ranks) {
      refuse("it has " + std::to_string(program_.ranks) + " ranks, and the group " + std::to_string(shape_.ranks));
    }
    const std::size_t blocks = block_count(program_.collective, program_.ranks);
    if (elements_.size() != blocks) {
      refuse("it has " + std::to_string(blocks) + " blocks, and sizes came for " + std::to_string(elements_.size()));
    }
    const bool complex =
        form_.dtype == DType::complex32 || form_.dtype == DType::complex64 || form_.dtype == DType::complex128;
    if (reduces(program_.collective) && (!supports(form_.dtype, form_.op) || (complex && form_.op != ReduceOp::sum))) {
      refuse(std::string(name_of(form_.op)) + " of " + std::string(name_of(form_.dtype)) +
             " is not among its operators");
    }
    if (program_.fifo_depth > shape_.depth) {
      refuse("it needs FIFOs of " + std::to_string(program_.fifo_depth) + " messages, and these hold " +
             std::to_string(shape_.depth));
    }
    if (options_.bulk && options_.protocol != Protocol::simple) {
      refuse("bulk copies move bytes, and only messages of the simple protocol are bytes");
    }
    if (options_.blocks == 0) refuse("no thread block of this rank can be on the GPU beside the others");
  }

  [[nodiscard]] std::uint32_t free_channels() const {
    return handshakes_ ? shape_.channels - std::min(shape_.channels, 2U) : shape_.channels;
  }

  /// True if any message is sent; `with_data`: any non-empty one.
  [[nodiscard]] bool sends_messages(bool with_data) const {
    return std::ranges::any_of(program_.instructions, [&](const Instruction& instruction) {
      return with_data ? sends_data(instruction.opcode) : sends(instruction.opcode);
    });
  }

  [[nodiscard]] std::uint32_t choose_instances() const {
    const std::uint32_t channels = sends_messages(false) ? program_.channels() : 0;
    if (handshakes_ && shape_.channels < 2) refuse("peers touch each other's memory, which takes 2 channels more");
    const std::uint32_t most = channels == 0 ? kMostLanes : free_channels() / channels;
    if (most == 0 || options_.instances > most) {
      refuse("it uses " + std::to_string(channels) + " channels" +
             (options_.instances > 1 ? " in each of " + std::to_string(options_.instances) + " instances" : "") +
             ", and " + std::to_string(free_channels()) + " are free");
    }
    if (options_.instances != 0) return options_.instances;
    // All ranks must compute the same number, so use the agent with the most lanes and sizes known to all.
    if (program_.collective == Collective::all_to_all && channels != 0) return 1;
    std::size_t lanes = 1, heaviest = 0;
    for (std::uint32_t rank = 0; rank < program_.ranks; ++rank) {
      lanes = std::max(lanes, program_.agent(rank).lanes.size());
    }
    for (std::uint32_t chunk = 0; chunk < program_.chunks.size(); ++chunk) {
      heaviest = std::max(heaviest, prepared_.range(chunk, elements_[prepared_.block(chunk)]).count);
    }
    const std::size_t worth = heaviest * element_bytes_ / kWorthAnInstance;
    const std::size_t room = (options_.blocks - (handshakes_ && options_.blocks > 1 ? 1 : 0)) / lanes;
    return static_cast<std::uint32_t>(std::clamp<std::size_t>(std::min(worth, room), 1, most));
  }

  // ---- sizes ------------------------------------------------------------------------------------------------------

  /// The instance's share of a chunk.
  [[nodiscard]] ElementRange share(std::uint32_t chunk, std::uint32_t instance) const {
    const ElementRange whole = prepared_.range(chunk, elements_[prepared_.block(chunk)]);
    const auto cut = [&](std::size_t i) {
      return i == form_.instances ? whole.count : whole.count * i / form_.instances / kGrain * kGrain;
    };
    return {whole.first + cut(instance), cut(instance + 1) - cut(instance)};
  }

  /// Elements per slice of the chunk: as many as fit a message, in proportion to its weight.
  [[nodiscard]] std::size_t slice(std::uint32_t chunk) const {
    if (longest_ == kUnsliced) return kUnsliced;
    return std::min(longest_, (prepared_.slice(chunk, longest_) + kGrain - 1) / kGrain * kGrain);
  }

  void set_slices() {
    longest_ = kUnsliced;
    if (sends_messages(true)) {
      const std::uint64_t whole = piece_stride(options_.protocol, 1);
      const std::uint64_t piece = payload_bytes(shape_, options_.protocol) / prepared_.message_slots() / whole * whole;
      longest_ = piece / element_bytes_;
      if (longest_ > kGrain) longest_ = longest_ / kGrain * kGrain;
      if (longest_ == 0) {
        refuse("a message of " + std::to_string(prepared_.message_slots()) + " slots does not fit one of " +
               std::to_string(payload_bytes(shape_, options_.protocol)) + " bytes");
      }
    }
    // Over all chunks, not only this rank's: signals carry no size, so ranks must count slices equally.
    for (std::uint32_t chunk = 0; chunk < program_.chunks.size(); ++chunk) {
      for (std::uint32_t instance = 0; instance < form_.instances; ++instance) {
        const std::size_t count = share(chunk, instance).count;
        if (count == 0) continue;
        const std::size_t slices = longest_ == kUnsliced ? 1 : (count + slice(chunk) - 1) / slice(chunk);
        if (slices > std::numeric_limits<std::uint32_t>::max() / 2) refuse("its buffers have too many slices");
        form_.slices = std::max(form_.slices, static_cast<std::uint32_t>(slices));
      }
    }
  }

  // ---- tables -----------------------------------------------------------------------------------------------------

  [[nodiscard]] std::uint32_t base(std::uint32_t rank, Space space, std::uint32_t block) {
    const Base wanted{rank, space, space == Space::scratch ? 0 : block};
    const auto [found, is_new] = base_of_.try_emplace(wanted, static_cast<std::uint32_t>(form_.bases.size()));
    if (is_new) form_.bases.push_back(wanted);
    if (form_.bases.size() > kMostBases) {
      refuse("its launch needs more than " + std::to_string(kMostBases) + " pointers");
    }
    return found->second;
  }

  /// The table index of a rank's slot; on first use, all slots of that space are added to the table.
  std::uint32_t slot(std::uint32_t rank, Slot slot, std::uint32_t instance) {
    const auto [found, is_new] =
        first_slot_.try_emplace({rank, slot.space, instance}, static_cast<std::uint32_t>(form_.slots.size()));
    if (is_new) add_slots(rank, slot.space, instance);
    return found->second + slot.index;
  }

  void add_slots(std::uint32_t rank, Space space, std::uint32_t instance) {
    const std::span<const SlotRow> slots = program_.agent(rank).slots(space);
    std::vector<std::size_t> theirs;
    if (space == Space::scratch && rank != rank_) {
      theirs = scratch_offsets(prepared_, rank, element_bytes_, elements_, movements_of(program_, rank).scratch_in_use);
    }
    const std::vector<std::size_t>& scratch = rank == rank_ ? scratch_ : theirs;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::uint32_t chunk = slots[i].chunk;
      const ElementRange part = share(chunk, instance);
      const std::size_t before = prepared_.range(chunk, elements_[prepared_.block(chunk)]).first;
      KernelSlot to;
      to.base = base(rank, space, prepared_.block(chunk));
      to.offset =
          space == Space::scratch ? scratch[i] + (part.first - before) * element_bytes_ : part.first * element_bytes_;
      to.bytes = part.count * element_bytes_;
      to.slice = longest_ == kUnsliced ? std::max<std::uint64_t>(1, to.bytes) : slice(chunk) * element_bytes_;
      form_.slots.push_back(to);
    }
  }

  [[nodiscard]] std::uint32_t fifo(std::int32_t peer, std::uint32_t channel, bool empty_message) const {
    if (peer == kNoPeer) return kNone;
    const Protocol protocol = empty_message ? Protocol::simple : options_.protocol;
    return fifo_index(shape_, static_cast<std::uint32_t>(peer), channel, protocol);
  }

  void add_instance(std::uint32_t instance) {
    const auto first_lane = static_cast<std::uint32_t>(form_.lanes.size());
    std::uint32_t origin = 0;
    for (const std::vector<Movement>& lane : movements_.lanes) {
      form_.lanes.push_back({.first = static_cast<std::uint32_t>(form_.instructions.size()),
                             .length = static_cast<std::uint32_t>(lane.size()),
                             .origin = origin++});
      for (const Movement& movement : lane) add_movement(movement, instance, first_lane);
    }
  }

  void add_movement(const Movement& movement, std::uint32_t instance, std::uint32_t first_lane) {
    KernelInstruction to;
    const std::size_t ends = movement.sources.size() + movement.destinations.size();
    if (ends > kMostEnds) {
      refuse("an instruction has " + std::to_string(ends) + " sources and destinations; " + std::to_string(kMostEnds) +
             " are the most");
    }
    to.first_end = static_cast<std::uint32_t>(form_.ends.size());
    to.sources = static_cast<std::uint16_t>(movement.sources.size());
    to.destinations = static_cast<std::uint16_t>(movement.destinations.size());
    for (const auto* const side : {&movement.sources, &movement.destinations}) {
      for (const End& end : *side) {
        form_.ends.push_back({end.message ? KernelEnd::kMessage : slot(end.rank, end.slot, instance)});
      }
    }
    if (to.sources > 0) to.shape = slot(movement.shape_rank, movement.shape, instance);
    to.count = movement.count;
    const std::uint32_t channel = movement.channel * form_.instances + instance;
    to.receives = fifo(movement.recv_peer, channel, movement.empty_message);
    to.sends = fifo(movement.send_peer, channel, movement.empty_message);
    to.skew = static_cast<std::uint16_t>(movement.skew);
    to.empty_message = movement.empty_message;
    to.origin = static_cast<std::uint16_t>(movement.origin);
    to.first_dependency = static_cast<std::uint32_t>(form_.dependencies.size());
    for (const Dependency& on : movement.dependencies) depend(first_lane + on.lane, on);
    if (handshakes_) {
      for (const auto* const side : {&movement.sources, &movement.destinations}) {
        for (const End& end : *side) {
          if (!end.message && end.rank != rank_) depend_on_begun(end.rank);
        }
      }
    }
    to.dependencies = static_cast<std::uint32_t>(form_.dependencies.size()) - to.first_dependency;
    form_.instructions.push_back(to);
  }

  void depend(std::uint32_t lane, const Dependency& on) {
    const std::vector<Movement>& of = movements_.lanes[on.lane];
    form_.dependencies.push_back({.lane = lane,
                                  .instruction = on.instruction,
                                  .length = static_cast<std::uint32_t>(of.size()),
                                  .skew = of[on.instruction].skew});
  }

  // ---- handshake: [signal begun ..] [wait begun ..] [signal finished ..] [wait finished ..], a lane after all others

  [[nodiscard]] std::uint32_t handshake_lane() const {
    return static_cast<std::uint32_t>(movements_.lanes.size()) * form_.instances;
  }
  [[nodiscard]] std::uint32_t handshake_length() const {
    return 2 * static_cast<std::uint32_t>(touching_.size() + touched_.size());
  }

  void depend_on_begun(std::uint32_t peer) {
    const auto at = static_cast<std::size_t>(std::ranges::find(touched_, peer) - touched_.begin());
    form_.dependencies.push_back({.lane = handshake_lane(),
                                  .instruction = static_cast<std::uint32_t>(touching_.size() + at),
                                  .length = handshake_length(),
                                  .skew = 0});
  }

  void add_handshake() {
    const std::uint32_t begun = shape_.channels - 2, finished = shape_.channels - 1;
    const std::uint32_t last = form_.slices == 0 ? 0 : form_.slices - 1;
    const auto add = [&](std::uint32_t peer, std::uint32_t channel, bool signals, bool at_end) {
      KernelInstruction to;
      (signals ? to.sends : to.receives) = fifo(static_cast<std::int32_t>(peer), channel, true);
      to.empty_message = true;
      to.first_slice = at_end ? last : 0;
      to.end_slice = at_end ? last + 1 : 1;
      to.first_dependency = static_cast<std::uint32_t>(form_.dependencies.size());
      if (signals && at_end) depend_on_touches(peer);
      to.dependencies = static_cast<std::uint32_t>(form_.dependencies.size()) - to.first_dependency;
      form_.instructions.push_back(to);
    };
    form_.lanes.push_back({.first = static_cast<std::uint32_t>(form_.instructions.size()),
                           .length = handshake_length(),
                           .origin = static_cast<std::uint32_t>(movements_.lanes.size())});
    for (const std::uint32_t peer : touching_) add(peer, begun, true, false);
    for (const std::uint32_t peer : touched_) add(peer, begun, false, false);
    for (const std::uint32_t peer : touched_) add(peer, finished, true, true);
    for (const std::uint32_t peer : touching_) add(peer, finished, false, true);
  }

  /// For the last movement of every lane that touches the peer's memory.
  void depend_on_touches(std::uint32_t peer) {
    for (std::uint32_t lane = 0; lane < movements_.lanes.size(); ++lane) {
      const std::vector<Movement>& movements = movements_.lanes[lane];
      for (auto at = static_cast<std::uint32_t>(movements.size()); at-- > 0;) {
        const auto there = [&](const End& end) { return !end.message && end.rank == peer; };
        if (!std::ranges::any_of(movements[at].sources, there) &&
            !std::ranges::any_of(movements[at].destinations, there)) {
          continue;
        }
        for (std::uint32_t instance = 0; instance < form_.instances; ++instance) {
          depend(instance * static_cast<std::uint32_t>(movements_.lanes.size()) + lane, {lane, at});
        }
        break;
      }
    }
  }

  void check_lanes() {
    for (const KernelDependency& on : form_.dependencies) {
      form_.instructions[form_.lanes[on.lane].first + on.instruction].observed = true;
    }
    const auto lanes = static_cast<std::uint32_t>(form_.lanes.size());
    form_.blocks = std::max(1U, std::min(lanes, options_.blocks));
    if (lanes > kMostLanes || (lanes + form_.blocks - 1) / form_.blocks > kMostLanesOfABlock) {
      refuse("its " + std::to_string(lanes) + " lanes do not fit " + std::to_string(form_.blocks) +
             " thread blocks of " + std::to_string(kMostLanesOfABlock) + " lanes each");
    }
  }

  static constexpr std::size_t kUnsliced = std::numeric_limits<std::size_t>::max();

  const PreparedProgram& prepared_;
  const Program& program_;
  const std::uint32_t rank_;
  const std::size_t element_bytes_;
  const std::span<const std::size_t> elements_;
  const ArenaShape& shape_;
  const LoweringOptions& options_;
  RankMovements movements_;
  std::vector<std::uint32_t> touched_, touching_;  // peers whose memory this rank touches; peers that touch its memory
  bool handshakes_ = false;
  std::size_t longest_ = kUnsliced;  // elements of a slice of the heaviest chunk
  std::vector<std::size_t> scratch_;
  std::map<Base, std::uint32_t> base_of_;
  std::map<std::tuple<std::uint32_t, Space, std::uint32_t>, std::uint32_t> first_slot_;  // rank, space, instance
  KernelForm form_;
};

}  // namespace

KernelTables KernelForm::tables() const {
  KernelTables tables;
  tables.lanes = lanes.data();
  tables.instructions = instructions.data();
  tables.ends = ends.data();
  tables.slots = slots.data();
  tables.dependencies = dependencies.data();
  tables.lane_count = static_cast<std::uint32_t>(lanes.size());
  tables.slices = slices;
  tables.blocks = blocks;
  tables.dtype = dtype;
  tables.op = op;
  tables.protocol = protocol;
  return tables;
}

KernelForm lower(const PreparedProgram& program, std::uint32_t rank, DType dtype, ReduceOp op,
                 std::span<const std::size_t> elements, const ArenaShape& shape, const LoweringOptions& options) {
  return Lowering(program, rank, dtype, op, elements, shape, options).run();
}

std::size_t scratch_bytes(const PreparedProgram& program, std::uint32_t rank, DType dtype,
                          std::span<const std::size_t> elements) {
  const RankMovements movements = movements_of(program.program(), rank);
  return scratch_offsets(program, rank, size_of(dtype), elements, movements.scratch_in_use).back();
}

}  // namespace syntony::cuda
