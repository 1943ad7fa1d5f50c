#include "reference.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <span>
#include <stdexcept>
#include <tuple>

#include "core/kernels/kernels.hpp"

namespace syntony::cuda {
namespace {

class Reference {
 public:
  Reference(const PreparedProgram& prepared, DType dtype, ReduceOp op, std::vector<Buffers>& ranks, bool in_place)
      : prepared_(prepared), program_(prepared.program()), dtype_(dtype), op_(op), slots_(program_.ranks) {
    for (std::uint32_t rank = 0; rank < program_.ranks; ++rank) {
      const Agent agent = program_.agent(rank);
      std::map<std::uint32_t, std::span<std::byte>> inputs;  // by chunk
      for (const auto [owner, space, chunk] : agent.input) {
        inputs[chunk] = part(ranks[rank].input[prepared.block(chunk)], chunk);
        slots_[rank][0].push_back(inputs[chunk]);
      }
      for (const auto [owner, space, chunk] : agent.output) {
        const bool alias = in_place && inputs.contains(chunk);
        slots_[rank][1].push_back(alias ? inputs[chunk] : part(ranks[rank].output[prepared.block(chunk)], chunk));
      }
      for (const auto [owner, space, chunk] : agent.scratch) {
        scratch_.emplace_back(elements_of(ranks, chunk) * size_of(dtype));
        slots_[rank][2].emplace_back(scratch_.back());
      }
      next_.emplace_back(agent.lanes.size(), 0);
    }
  }

  void run() {
    for (bool moved = true, unfinished = true; unfinished;) {
      if (!moved) throw std::logic_error("the reference is stuck in " + program_.name);
      moved = unfinished = false;
      for (std::uint32_t rank = 0; rank < program_.ranks; ++rank) {
        const Agent agent = program_.agent(rank);
        for (std::size_t lane = 0; lane < agent.lanes.size(); ++lane) {
          while (next_[rank][lane] < agent.lanes[lane].size() && step(rank, agent.lanes[lane][next_[rank][lane]])) {
            ++next_[rank][lane];
            moved = true;
          }
          unfinished = unfinished || next_[rank][lane] < agent.lanes[lane].size();
        }
      }
    }
  }

 private:
  using Memory = std::span<std::byte>;
  using Message = std::vector<Bytes>;

  std::size_t elements_of(const std::vector<Buffers>& ranks, std::uint32_t chunk) const {
    for (const Buffers& buffers : ranks) {
      for (const auto* const side : {&buffers.input, &buffers.output}) {
        const std::size_t bytes = (*side)[prepared_.block(chunk)].size();
        if (bytes > 0) return prepared_.range(chunk, bytes / size_of(dtype_)).count;
      }
    }
    return 0;
  }
  Memory part(Bytes& block, std::uint32_t chunk) const {
    const ElementRange range = prepared_.range(chunk, block.size() / size_of(dtype_));
    return Memory(block).subspan(range.first * size_of(dtype_), range.count * size_of(dtype_));
  }
  Memory at(std::uint32_t rank, Slot slot, std::uint32_t k) const {
    return slots_[rank][static_cast<std::size_t>(slot.space)][slot.index + k];
  }
  static void copy(Memory to, std::span<const std::byte> from) {
    if (!to.empty() && to.data() != from.data()) std::memcpy(to.data(), from.data(), to.size());
  }

  bool step(std::uint32_t rank, const Instruction& i) {
    for (const Dependency on : program_.dependencies_of(i)) {
      if (next_[rank][on.lane] <= on.instruction) return false;
    }
    Message message;
    if (receives(i.opcode)) {
      std::deque<Message>& fifo = fifos_[{static_cast<std::uint32_t>(i.recv_peer), rank, i.channel}];
      if (fifo.empty()) return false;
      message = std::move(fifo.front());
      fifo.pop_front();
    }
    const bool combines = i.opcode == Opcode::recv_reduce || i.opcode == Opcode::recv_reduce_send ||
                          i.opcode == Opcode::recv_reduce_copy_send;
    const bool empty = i.opcode == Opcode::nop || i.opcode == Opcode::signal || i.opcode == Opcode::wait;
    for (std::uint32_t k = 0; k < i.count && !empty; ++k) {
      const auto peer = static_cast<std::uint32_t>(i.send_peer);
      Bytes value;
      std::vector<const std::byte*> sources;
      if (receives(i.opcode)) {
        value = message[k];
        sources.push_back(message[k].data());
      }
      if (!receives(i.opcode) || combines) {
        const Memory src = at(i.opcode == Opcode::peer_read ? peer : rank, i.src, k);
        value.resize(src.size());
        sources.push_back(src.data());
      }
      for (const Slot operand : program_.operands_of(i)) sources.push_back(at(rank, operand, k).data());
      reduce(dtype_, op_, value.data(), sources, value.size() / size_of(dtype_));
      if (i.opcode != Opcode::send && i.opcode != Opcode::recv_reduce_send) {
        copy(at(i.opcode == Opcode::peer_write ? peer : rank, i.dst, k), value);
      }
      if (receives(i.opcode)) {
        message[k] = value;
      } else {
        message.push_back(value);
      }
    }
    if (sends(i.opcode)) fifos_[{rank, static_cast<std::uint32_t>(i.send_peer), i.channel}].push_back(message);
    return true;
  }

  const PreparedProgram& prepared_;
  const Program& program_;
  DType dtype_;
  ReduceOp op_;
  std::vector<std::array<std::vector<Memory>, 3>> slots_;
  std::deque<Bytes> scratch_;
  std::vector<std::vector<std::size_t>> next_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, std::deque<Message>> fifos_;
};

}  // namespace

void run_reference(const PreparedProgram& program, DType dtype, ReduceOp op, std::vector<Buffers>& ranks,
                   bool in_place) {
  Reference(program, dtype, op, ranks, in_place).run();
}

}  // namespace syntony::cuda
