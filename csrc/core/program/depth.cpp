#include "core/program/depth.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <tuple>
#include <vector>

namespace syntony {
namespace {

/// Runs one slice of a Program, message by message, and counts.
class Run {
 public:
  explicit Run(const Program& program)
      : program_(program),
        hops_(program.instructions.size()),
        next_(program.lane_start.size() - 1),
        last_(program.ranks),
        arrivals_(program.ranks) {
    for (std::size_t lane = 0; lane < next_.size(); ++lane) next_[lane] = program.lane_start[lane];
  }

  /// Advances each lane as far as it can. True if any moved.
  bool pass() {
    bool moved = false;
    for (std::uint32_t agent = 0; agent < program_.ranks; ++agent) {
      for (std::uint32_t lane = program_.first_lane[agent]; lane < program_.first_lane[agent + 1]; ++lane) {
        while (next_[lane] < program_.lane_start[lane + 1] && perform(agent, lane)) moved = true;
      }
    }
    return moved;
  }
  [[nodiscard]] std::uint32_t hops() const { return hops_.empty() ? 0 : *std::ranges::max_element(hops_); }
  /// Messages that come to a rank later than those that are sent when its last one is.
  [[nodiscard]] std::size_t tail(std::uint32_t rank) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(arrivals_[rank], [&](std::uint32_t arrival) { return arrival > last_[rank] + 1; }));
  }

 private:
  using Connection = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // from, to, channel

  /// False if the lane's next instruction must wait.
  bool perform(std::uint32_t agent, std::uint32_t lane) {
    const std::uint32_t row = next_[lane];
    const Instruction& instruction = program_.instructions[row];
    std::uint32_t before = row > program_.lane_start[lane] ? hops_[row - 1] : 0;
    for (const Dependency dependency : program_.dependencies_of(instruction)) {
      const std::uint32_t other = program_.first_lane[agent] + dependency.lane;
      const std::uint32_t needed = program_.lane_start[other] + dependency.instruction;
      if (next_[other] <= needed) return false;
      before = std::max(before, hops_[needed]);
    }
    if (receives(instruction.opcode)) {
      const auto from = static_cast<std::uint32_t>(instruction.recv_peer);
      std::deque<std::uint32_t>& arrived = messages_[{from, agent, instruction.channel}];
      if (arrived.empty()) return false;
      before = std::max(before, arrived.front() + 1);
      arrivals_[agent].push_back(arrived.front() + 1);
      arrived.pop_front();
    }
    if (sends(instruction.opcode)) {
      const auto to = static_cast<std::uint32_t>(instruction.send_peer);
      messages_[{agent, to, instruction.channel}].push_back(before);
      last_[agent] = std::max(last_[agent], before);
    }
    hops_[row] = before;
    ++next_[lane];
    return true;
  }

  const Program& program_;
  std::vector<std::uint32_t> hops_;                   // by instruction, up to and including it
  std::vector<std::uint32_t> next_;                   // by lane over all agents: its next row
  std::vector<std::uint32_t> last_;                   // by rank: hops before its last message
  std::vector<std::vector<std::uint32_t>> arrivals_;  // by rank: hops up to each message that it receives
  std::map<Connection, std::deque<std::uint32_t>> messages_;
};

}  // namespace

ProgramDepth depth_of(const Program& program) {
  Run run(program);
  while (run.pass()) {
  }
  ProgramDepth depth{.hops = run.hops()};
  for (std::uint32_t rank = 0; rank < program.ranks; ++rank) {
    const auto sent = std::ranges::count_if(program.agent(rank).instructions,
                                            [](const Instruction& i) { return sends_data(i.opcode); });
    depth.busiest = std::max(depth.busiest, static_cast<std::uint32_t>(sent));
    if (sent > 0) depth.tail = std::max(depth.tail, static_cast<double>(run.tail(rank)) / static_cast<double>(sent));
  }
  return depth;
}

}  // namespace syntony
