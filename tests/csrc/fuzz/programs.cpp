// Programs for the executor: from the builders, random ones, and both with some numbers changed. Correct ones must give
// the result of a second implementation (cuda/reference.hpp), whatever the sizes, element types, sums and slots.
// Changed ones that Program::validate still accepts may give anything, stop, or be rejected, but must stay in their own
// memory: every block, every frame and all scratch are allocations of exact length, so the address sanitizer sees the
// first byte beyond.
//
// The ranks are Executions of one thread, stepped in random order over queues in memory. An input is only a seed.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "core/call.hpp"
#include "core/error.hpp"
#include "core/kernels/kernels.hpp"
#include "core/program/algorithms/algorithms.hpp"
#include "core/program/algorithms/hierarchical.hpp"
#include "core/program/collective.hpp"
#include "core/program/prepared_program.hpp"
#include "core/progress/executor.hpp"
#include "cuda/programs.hpp"
#include "cuda/reference.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

using cuda::below;
using cuda::Buffers;
using cuda::Random;

// ---- Programs -------------------------------------------------------------------------------------------------------

Program right_program(Random& random, std::uint32_t ranks) {
  const std::uint32_t kind = below(random, 4);
  if (kind == 0) return cuda::random_program(random, ranks);
  if (kind == 1) return cuda::fused_rings(random, ranks);
  const std::span<const Algorithm> all = algorithms();
  const Algorithm& algorithm = all[below(random, static_cast<std::uint32_t>(all.size()))];
  const Collective collective =
      algorithm.collectives[below(random, static_cast<std::uint32_t>(algorithm.collectives.size()))];
  const bool rooted = collective == Collective::broadcast || collective == Collective::reduce ||
                      collective == Collective::gather || collective == Collective::scatter;
  return algorithm.build({collective, ranks, rooted ? below(random, ranks) : 0, boxes_for(ranks), {}});
}

/// Changes one number to that of another row, its neighbour, or one at which arithmetic overflows.
class Change {
 public:
  Change(Program& program, Random& random) : program_(program), random_(random) {}

  void one() {
    switch (below(random_, 8)) {
      case 0:
        return scalar();
      case 1:
        return row(program_.chunks, [&](Chunk& c, Chunk& other) {
          below(random_, 2) == 0 ? number(c.block, other.block) : number(c.weight, other.weight);
        });
      case 2:
        return row(program_.slots, [&](SlotRow& s, SlotRow& other) {
          const std::uint32_t kind = below(random_, 12);
          if (kind == 0) return number(s.agent, other.agent);
          if (kind == 1) s.space = static_cast<Space>(below(random_, 4));
          if (kind > 1) number(s.chunk, other.chunk);
        });
      case 3:
        return row(program_.operands, [&](Slot& s, Slot& other) { slot(s, other); });
      case 4:
        return row(program_.dependencies, [&](Dependency& d, Dependency& other) {
          below(random_, 2) == 0 ? number(d.lane, other.lane) : number(d.instruction, other.instruction);
        });
      default:
        if (program_.instructions.empty()) return;
        if (below(random_, 12) == 0) return rows(program_.instructions);
        return instruction(any(program_.instructions), any(program_.instructions));
    }
  }

 private:
  template <typename Rows>
  typename Rows::value_type& any(Rows& rows) {
    return rows[below(random_, static_cast<std::uint32_t>(rows.size()))];
  }
  template <typename Rows, typename Do>
  void row(Rows& rows, const Do& change) {
    if (!rows.empty()) change(any(rows), any(rows));
  }
  /// Wraps around, where a signed number would overflow.
  template <typename Number>
  static std::uint64_t wide(Number number) {
    return static_cast<std::uint64_t>(number);
  }
  template <typename Number>
  void number(Number& field, Number other) {
    static constexpr std::uint32_t kEdges[] = {0, 1, 2, 3, 7, 0xff, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff};
    switch (below(random_, 4)) {
      case 0:
        field = static_cast<Number>(wide(field) + 1);
        return;
      case 1:
        field = static_cast<Number>(wide(field) - 1);
        return;
      case 2:
        field = static_cast<Number>(kEdges[below(random_, std::size(kEdges))]);
        return;
      default:
        field = other;
    }
  }
  void slot(Slot& field, Slot other) {
    if (below(random_, 3) == 0) field.space = static_cast<Space>(below(random_, 4));
    if (below(random_, 2) == 0) number(field.index, other.index);
  }
  void scalar() {
    switch (below(random_, 5)) {
      case 0:
        return number(program_.root, below(random_, 4));
      case 1:
        return number(program_.fifo_depth, 2U);
      case 2:
        program_.out_of_place = !program_.out_of_place;
        return;
      case 3:
        program_.in_place = !program_.in_place;
        return;
      default:
        program_.collective = static_cast<Collective>(below(random_, 8));
    }
  }
  /// Adds or removes a row, without references of its own.
  void rows(std::vector<Instruction>& table) {
    const auto at = table.begin() + below(random_, static_cast<std::uint32_t>(table.size()));
    if (at->operand_count > 0 || at->dependency_count > 0) return;
    if (below(random_, 2) == 0) {
      table.erase(at);
    } else {
      table.insert(at, Instruction(*at));
    }
  }
  void instruction(Instruction& i, const Instruction& other) {
    switch (below(random_, 11)) {
      case 0:
        i.opcode = static_cast<Opcode>(below(random_, static_cast<std::uint32_t>(kOpcodes.size()) + 1));
        return;
      case 1:
        return slot(i.dst, other.dst);
      case 2:
        return slot(i.src, other.src);
      case 3:
        return number(i.count, other.count);
      case 4:
        return number(i.recv_peer, other.recv_peer);
      case 5:
        return number(i.send_peer, other.send_peer);
      case 6:
        return number(i.channel, other.channel);
      case 7:
        return number(i.skew, other.skew);
      case 8:
        return number(i.operand_count, other.operand_count);
      case 9:
        return below(random_, 4) == 0 ? number(i.lane, other.lane) : number(i.dependency_count, other.dependency_count);
      default: {  // all of the other row but where it stands and what it owns
        const Instruction own = i;
        i = other;
        i.agent = own.agent, i.lane = own.lane;
        i.operand_count = own.operand_count, i.dependency_count = own.dependency_count;
      }
    }
  }

  Program& program_;
  Random& random_;
};

// ---- Queues ---------------------------------------------------------------------------------------------------------

/// A connection whose frames are allocations of exactly their own length.
class Queue final : public Sender, public Receiver {
 public:
  Queue(std::uint32_t depth, std::uint32_t slot_bytes) : depth_(depth), slot_bytes_(slot_bytes) {}

  std::byte* reserve(std::size_t bytes) override {
    require_fit(bytes, slot_bytes_, 0);
    if (frames_.size() >= depth_) return nullptr;
    if (!room_ || reserved_ != bytes) room_ = std::make_unique<std::byte[]>(std::max<std::size_t>(1, bytes));
    reserved_ = bytes;
    return room_.get();
  }
  void commit(const FrameHeader& header) override {
    require(room_ != nullptr && header.length <= reserved_, "a frame is longer than the room that was reserved");
    frames_.push_back({header, std::move(room_)});
  }
  std::uint64_t on_their_way() override { return frames_.size(); }
  const FrameHeader* front() override { return frames_.empty() ? nullptr : &frames_.front().header; }
  [[nodiscard]] const std::byte* payload() const override { return frames_.front().bytes.get(); }
  void release() override { frames_.pop_front(); }

 private:
  struct Frame {
    FrameHeader header;
    std::unique_ptr<std::byte[]> bytes;
  };
  std::size_t depth_;
  std::uint32_t slot_bytes_;
  std::unique_ptr<std::byte[]> room_;
  std::size_t reserved_ = 0;
  std::deque<Frame> frames_;
};

/// All connections of a run.
class Wires {
 public:
  Wires(std::uint32_t depth, std::uint32_t slot_bytes) : depth_(depth), slot_bytes_(slot_bytes) {}
  Queue& between(std::uint32_t from, std::uint32_t to, std::uint32_t channel) {
    return queues_.try_emplace({from, to, channel}, depth_, slot_bytes_).first->second;
  }
  [[nodiscard]] bool empty() {
    return std::ranges::all_of(queues_, [](auto& entry) { return entry.second.front() == nullptr; });
  }

 private:
  std::uint32_t depth_, slot_bytes_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, Queue> queues_;
};

/// A rank's end of them.
class End final : public Transport {
 public:
  End(Wires& wires, std::uint32_t rank) : wires_(wires), rank_(rank) {}
  Sender& sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t) override {
    return wires_.between(rank_, peer, channel);
  }
  Receiver& receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t) override {
    return wires_.between(peer, rank_, channel);
  }
  bool progress() override { return false; }
  [[nodiscard]] bool unsent() const override { return false; }
  bool drain(std::chrono::milliseconds) override { return true; }
  void wake() override {}
  void sleeping(bool) override {}
  [[nodiscard]] std::span<const int> descriptors() const override { return {}; }

 private:
  Wires& wires_;
  std::uint32_t rank_;
};

// ---- A run ----------------------------------------------------------------------------------------------------------

struct Setting {
  DType dtype;
  ReduceOp op;
  bool in_place;
  bool even;
  std::uint32_t slot_bytes;
  std::uint32_t depth;
  std::vector<std::size_t> elements;  // of each block
};

Setting random_setting(Random& random, const Program& program) {
  Setting setting;
  do {
    setting.dtype = static_cast<DType>(below(random, static_cast<std::uint32_t>(kDTypes.size())));
    setting.op = static_cast<ReduceOp>(below(random, static_cast<std::uint32_t>(kReduceOps.size())));
  } while (!supports(setting.dtype, setting.op));
  setting.in_place = program.in_place && (!program.out_of_place || below(random, 2) == 0);
  setting.even = below(random, 2) == 0;
  setting.slot_bytes = std::uint32_t{64} << below(random, 7);
  setting.depth = std::clamp(program.fifo_depth, 1U, 8U) + below(random, 4);
  const std::uint32_t fit = setting.slot_bytes / static_cast<std::uint32_t>(size_of(setting.dtype));
  const std::uint32_t sizes[] = {0, 1, 2, fit - 1, fit, fit + 1, 3 * fit + 1, below(random, 600)};
  const std::size_t first = sizes[below(random, std::size(sizes))];
  for (std::uint32_t block = 0; block < block_count(program.collective, program.ranks); ++block) {
    setting.elements.push_back(setting.even ? first : sizes[below(random, std::size(sizes))]);
  }
  return setting;
}

/// Finite numbers in every float format, and valid values of bool.
void fill(Random& random, DType dtype, cuda::Bytes& bytes) {
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(dtype == DType::boolean ? below(random, 2) : 0x38 + below(random, 4));
  }
}

std::vector<Buffers> buffers_of(Random& random, const Program& program, const Setting& setting) {
  std::vector<Buffers> all(program.ranks);
  for (std::uint32_t rank = 0; rank < program.ranks; ++rank) {
    all[rank].input.resize(setting.elements.size());
    all[rank].output.resize(setting.elements.size());
    for (std::uint32_t block = 0; block < setting.elements.size(); ++block) {
      const std::size_t bytes = setting.elements[block] * size_of(setting.dtype);
      if (starts_with(program.collective, program.ranks, program.root, rank, block)) {
        all[rank].input[block].resize(bytes);
        fill(random, setting.dtype, all[rank].input[block]);
      }
      if (ends_with(program.collective, program.ranks, program.root, rank, block)) {
        all[rank].output[block].resize(bytes);
        if (setting.in_place && !all[rank].input[block].empty()) all[rank].output[block] = all[rank].input[block];
      }
    }
  }
  return all;
}

/// Runs all ranks until nothing moves. True if all finished.
bool execute(const PreparedProgram& program, const Setting& setting, Random& random, std::vector<Buffers>& ranks) {
  const auto size = static_cast<std::uint32_t>(ranks.size());
  Wires wires(setting.depth, setting.slot_bytes);
  std::deque<End> ends;
  std::deque<std::vector<Transport*>> by_peer;
  std::deque<std::vector<SentBytes>> sent;
  std::deque<Call> calls;
  std::deque<std::vector<std::byte>> scratch;
  std::deque<Execution> executions;
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    by_peer.emplace_back(size, &ends.emplace_back(wires, rank))[rank] = nullptr;
    Call& call = calls.emplace_back(Call{.dtype = setting.dtype, .op = setting.op, .even = setting.even});
    for (std::size_t block = 0; block < setting.elements.size(); ++block) {
      cuda::Bytes& input = ranks[rank].input[block];
      cuda::Bytes& output = ranks[rank].output[block];
      const bool alias = setting.in_place && !input.empty() && !output.empty();
      call.blocks.push_back({alias ? output.data() : input.data(), output.data(), setting.elements[block]});
    }
    scratch.emplace_back(Execution::scratch_bytes(program, rank, call));
    Wire wire;
    wire.transports = by_peer.back();
    wire.slot_bytes = setting.slot_bytes;
    wire.sent = sent.emplace_back(size);
    executions.emplace_back(program, rank, call, scratch.back(), wire);
  }
  for (std::uint32_t idle = 0; idle < 2; ++idle) {  // one that is stuck may have been one that was held back
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t turn = 0; turn < 2 * size; ++turn) {
        Pace pace{.instructions = 1 + below(random, 8)};
        if (below(random, 4) == 0 && idle == 0) pace.frames = 1;
        if (executions[below(random, size)].step(pace)) moved = true;
      }
      for (Execution& execution : executions) moved = execution.step() || moved;
    }
  }
  const bool done = std::ranges::all_of(executions, [](const Execution& execution) { return execution.done(); });
  return done && wires.empty();
}

bool take(std::span<const std::byte> input) {
  std::uint64_t seed = 0xcbf29ce484222325ULL;
  for (const std::byte byte : input) seed = (seed ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3ULL;
  Random random(seed);
  Program program = right_program(random, 2 + below(random, 3));
  const std::uint32_t changes = below(random, 4);
  for (std::uint32_t i = 0; i < changes; ++i) Change(program, random).one();
  std::optional<PreparedProgram> prepared;
  try {
    program.validate();
    if (program.one_sided()) return false;
    prepared.emplace(program);
  } catch (const std::invalid_argument&) {
    require(changes > 0, "a right Program is refused");
    return false;
  }

  const Setting setting = random_setting(random, program);
  const std::vector<Buffers> given = buffers_of(random, program, setting);
  std::vector<Buffers> ranks = given;
  bool ended = false;
  try {
    ended = execute(*prepared, setting, random, ranks);
  } catch (const UnexpectedFrame&) {
    require(changes > 0, "a right Program meets a frame that it does not expect");
  } catch (const Error&) {
    require(changes > 0, "a right Program cuts a frame that no slot takes");
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    require(!program.out_of_place || ranks[rank].input == given[rank].input, "an input was written");
  }
  if (changes > 0) return false;
  require(ended, "a right Program is stuck");
  std::vector<Buffers> expected = given;
  cuda::run_reference(*prepared, setting.dtype, setting.op, expected, setting.in_place);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (std::size_t block = 0; block < setting.elements.size(); ++block) {
      const bool alias = setting.in_place && !given[rank].input[block].empty();
      const cuda::Bytes& wanted =
          alias && !given[rank].output[block].empty() ? expected[rank].input[block] : expected[rank].output[block];
      if (!given[rank].output[block].empty())
        require(ranks[rank].output[block] == wanted, "a right Program gives a wrong result");
    }
  }
  return true;
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  Random random(1);
  while (all.size() < 512) {
    Bytes seed;
    append(seed, random());
    if (take(seed)) all.push_back(std::move(seed));
  }
  return all;
}

}  // namespace

const Target kPrograms{"programs", seeds, take, [] {}};

}  // namespace syntony::fuzz
