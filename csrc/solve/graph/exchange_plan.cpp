#include "solve/graph/exchange_plan.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "solve/graph/birkhoff.hpp"

namespace syntony {
namespace {

constexpr std::int64_t kLeastStages = 16;

/// Bytes of one block on one NIC.
struct Part {
  std::size_t from, to;  // within their boxes
  std::int64_t offset, bytes;
};

/// Deals a box's bytes for another box to its NICs, equally (one more for some). A rank keeps as much as possible on
/// its own NIC, first what the opposite rank wants; the rest fills up the other NICs.
class Dealer {
 public:
  Dealer(std::size_t ranks, std::span<const std::int64_t> matrix, std::size_t width,
         std::vector<std::vector<Part>>& nics)
      : ranks_(ranks), matrix_(matrix), width_(width), nics_(nics), room_(ranks) {}

  /// Deals the blocks from `source` to `target` (first ranks of boxes); returns their bytes.
  std::int64_t deal(std::size_t source, std::size_t target, std::size_t turn) {
    std::int64_t total = 0;
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t to = 0; to < ranks_; ++to) total += block(source + from, target + to);
    }
    const auto count = static_cast<std::int64_t>(ranks_);
    for (std::size_t nic = 0; nic < ranks_; ++nic) {
      nics_[nic].clear();
      // The remaining bytes go to different NICs for every pair of boxes.
      room_[nic] = total / count + (static_cast<std::int64_t>((nic + turn) % ranks_) < total % count ? 1 : 0);
    }
    excess_.clear();
    for (std::size_t from = 0; from < ranks_; ++from) {
      for (std::size_t step = 0; step < ranks_; ++step) {
        const std::size_t to = (from + step) % ranks_;
        const Part whole{from, to, 0, block(source + from, target + to)};
        if (whole.bytes > 0) keep(from, whole);
      }
    }
    std::size_t nic = 0;
    for (Part part : excess_) {
      while (part.bytes > 0) {
        while (room_[nic] == 0) ++nic;
        put(nic, part);
      }
    }
    return total;
  }

 private:
  [[nodiscard]] std::int64_t block(std::size_t from, std::size_t to) const { return matrix_[from * width_ + to]; }

  void keep(std::size_t nic, Part part) {
    if (room_[nic] > 0) put(nic, part);
    if (part.bytes > 0) excess_.push_back(part);
  }

  /// Puts as much of the part on the NIC as fits, and removes it from the part.
  void put(std::size_t nic, Part& part) {
    const std::int64_t fits = std::min(room_[nic], part.bytes);
    nics_[nic].push_back({part.from, part.to, part.offset, fits});
    room_[nic] -= fits;
    part.offset += fits;
    part.bytes -= fits;
  }

  std::size_t ranks_;
  std::span<const std::int64_t> matrix_;
  std::size_t width_;
  std::vector<std::vector<Part>>& nics_;
  std::vector<std::int64_t> room_;
  std::vector<Part> excess_;
};

/// The same permutations, none longer than 1 / kLeastStages of the total, with the longest in the middle: the local
/// transfers before the first stage and after the last are then short, and the rest of them overlaps with the stages.
Permutations in_short_stages(const Permutations& found, std::size_t n) {
  const std::int64_t total = std::accumulate(found.length.begin(), found.length.end(), std::int64_t{0});
  const std::int64_t most = std::max<std::int64_t>(1, total / kLeastStages);
  Permutations cut;
  const auto append = [&](std::size_t stage) {
    const std::int64_t length = found.length[stage], parts = (length + most - 1) / most;
    for (std::int64_t part = 0; part < parts; ++part) {
      cut.length.push_back(length / parts + (part < length % parts ? 1 : 0));
      const auto row = found.to.begin() + static_cast<std::ptrdiff_t>(stage * n);
      cut.to.insert(cut.to.end(), row, row + static_cast<std::ptrdiff_t>(n));
    }
  };
  const std::size_t count = found.length.size();
  for (std::size_t stage = count; stage-- > 0;) {
    if (stage % 2 == 0) append(stage);
  }
  for (std::size_t stage = 1; stage < count; stage += 2) append(stage);
  return cut;
}

/// A stage in which a pair of boxes talks, and up to which of its bytes.
struct Turn {
  std::int32_t stage;
  std::int64_t end;
};

class Planner {
 public:
  Planner(std::size_t boxes, std::size_t per_box, std::span<const std::int64_t> matrix)
      : boxes_(boxes), per_box_(per_box), matrix_(matrix), nics_(per_box) {}

  ExchangePlan plan() {
    const std::size_t ranks = boxes_ * per_box_;
    std::vector<std::int64_t> between(boxes_ * boxes_, 0);
    for (std::size_t box = 0; box < boxes_; ++box) {
      for (std::size_t from = box * per_box_; from < (box + 1) * per_box_; ++from) {
        const std::span<const std::int64_t> row = matrix_.subspan(from * ranks, ranks);
        for (std::size_t other = 0; other < boxes_; ++other) {
          for (std::size_t to = other * per_box_; to < (other + 1) * per_box_; ++to) {
            if (row[to] < 0) {
              throw std::invalid_argument("rank " + std::to_string(from) + " has fewer than no bytes for rank " +
                                          std::to_string(to));
            }
            if (other == box) {
              add(-1, from, from, to, to, 0, row[to]);
            } else {
              between[box * boxes_ + other] += row[to];
            }
          }
        }
      }
    }
    const Permutations stages = in_short_stages(birkhoff(boxes_, between), boxes_);
    plan_.length = stages.length;
    std::vector<std::vector<Turn>> turns(boxes_ * boxes_);
    std::vector<std::int64_t> sent(boxes_ * boxes_, 0);
    for (std::size_t stage = 0; stage < stages.length.size(); ++stage) {
      for (std::size_t box = 0; box < boxes_; ++box) {
        const std::size_t pair = box * boxes_ + static_cast<std::size_t>(stages.to[stage * boxes_ + box]);
        const std::int64_t end = std::min(between[pair], sent[pair] + stages.length[stage]);
        if (end > sent[pair]) turns[pair].push_back({static_cast<std::int32_t>(stage), end});
        sent[pair] = end;
      }
    }
    Dealer dealer(per_box_, matrix_, ranks, nics_);
    for (std::size_t box = 0; box < boxes_; ++box) {
      for (std::size_t other = 0; other < boxes_; ++other) {
        const std::size_t pair = box * boxes_ + other, source = box * per_box_, target = other * per_box_;
        if (turns[pair].empty()) continue;
        const std::int64_t total = dealer.deal(source, target, pair);
        for (std::size_t nic = 0; nic < per_box_; ++nic) spread(source, target, nic, turns[pair], total);
      }
    }
    return std::move(plan_);
  }

 private:
  /// Distributes a NIC's parts over the turns of its pair of boxes: each gets its share of the bytes.
  void spread(std::size_t source, std::size_t target, std::size_t nic, const std::vector<Turn>& turns,
              std::int64_t total) {
    std::int64_t mine = 0, done = 0;
    for (const Part& part : nics_[nic]) mine += part.bytes;
    auto turn = turns.begin();
    const auto share = [&] {  // bytes of this NIC that have been sent when the turn ends
      return static_cast<std::int64_t>(static_cast<__int128>(mine) * turn->end / total);
    };
    std::int64_t until = share();
    for (Part part : nics_[nic]) {
      while (part.bytes > 0) {
        while (until <= done) {
          ++turn;
          until = share();
        }
        const std::int64_t now = std::min(part.bytes, until - done);
        add(turn->stage, source + part.from, source + nic, target + nic, target + part.to, part.offset, now);
        part.offset += now;
        part.bytes -= now;
        done += now;
      }
    }
  }

  void add(std::int32_t stage, std::size_t from, std::size_t out, std::size_t in, std::size_t to, std::int64_t offset,
           std::int64_t bytes) {
    if (bytes == 0) return;
    plan_.stage.push_back(stage);
    plan_.from.push_back(static_cast<std::int32_t>(from));
    plan_.out.push_back(static_cast<std::int32_t>(out));
    plan_.in.push_back(static_cast<std::int32_t>(in));
    plan_.to.push_back(static_cast<std::int32_t>(to));
    plan_.offset.push_back(offset);
    plan_.bytes.push_back(bytes);
  }

  std::size_t boxes_, per_box_;
  std::span<const std::int64_t> matrix_;
  std::vector<std::vector<Part>> nics_;
  ExchangePlan plan_;
};

}  // namespace

ExchangePlan plan_exchange(std::size_t boxes, std::size_t per_box, std::span<const std::int64_t> matrix) {
  if (per_box == 0) throw std::invalid_argument("a box has at least one rank");
  const std::size_t ranks = boxes * per_box;
  if (matrix.size() != ranks * ranks) {
    throw std::invalid_argument(std::to_string(matrix.size()) + " entries are not a matrix of " +
                                std::to_string(ranks) + " ranks");
  }
  return Planner(boxes, per_box, matrix).plan();
}

}  // namespace syntony
