#include "core/program/algorithms/algorithms.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "core/program/algorithms/bruck.hpp"
#include "core/program/algorithms/butterfly.hpp"
#include "core/program/algorithms/dbt.hpp"
#include "core/program/algorithms/direct.hpp"
#include "core/program/algorithms/pat.hpp"
#include "core/program/algorithms/ring.hpp"

namespace syntony {
namespace {

constexpr std::array kEvery{Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                            Collective::all_to_all, Collective::broadcast,  Collective::reduce,
                            Collective::gather,     Collective::scatter};
constexpr std::array kAllReduce{Collective::all_reduce};
constexpr std::array kMoves{Collective::all_gather, Collective::all_to_all};
constexpr std::array kGatherAndScatter{Collective::all_gather, Collective::reduce_scatter};
constexpr std::array kSums{Collective::all_reduce, Collective::reduce_scatter};

constexpr std::array kAlgorithms{
    Algorithm{"direct", "everyone sends straight to whoever must have it; one hop, sums rounded once", kEvery,
              [](const Asked& a) { return direct(a.collective, a.ranks, a.root); }},
    Algorithm{"two_shot", "direct reduce_scatter, then direct all_gather; two hops, sums rounded once", kAllReduce,
              [](const Asked& a) { return two_shot_all_reduce(a.ranks, a.shares); }},
    Algorithm{"pairwise",
              "the same with sums in one association, a binary tree over ranks; rounded at each of its nodes", kSums,
              [](const Asked& a) { return pairwise(a.collective, a.ranks); }},
    Algorithm{"ring", "neighbours only; least traffic per rank, 2(n-1) hops for all_reduce", kEvery,
              [](const Asked& a) { return ring(a.collective, a.ranks, a.root); }},
    Algorithm{"dbt", "double binary tree; half of the data over each tree, 2 log2(n) hops for all_reduce", kEvery,
              [](const Asked& a) { return dbt(a.collective, a.ranks, a.root); }},
    Algorithm{"recursive_doubling",
              "partners at distance 1, 2, 4 .. exchange all they have; log2(n) hops, for few bytes", kAllReduce,
              [](const Asked& a) { return recursive_doubling(a.ranks); }},
    Algorithm{"rabenseifner",
              "partners at distance n/2, n/4 .. exchange halves, and back; 2 log2(n) hops, least traffic", kAllReduce,
              [](const Asked& a) { return rabenseifner(a.ranks); }},
    Algorithm{"swing", "the same with partners at distance 1, 1, 3, 5, 11 ..; fewer links on rings and tori",
              kAllReduce, [](const Asked& a) { return swing(a.ranks); }},
    Algorithm{"bruck", "hands on what was received, at distance 1, 2, 4 ..; log2(n) messages, for very few bytes",
              kMoves, [](const Asked& a) { return bruck(a.collective, a.ranks); }},
    Algorithm{"pat", "a binomial tree per block, far hops first; log2(n) messages, small ones far and large ones near",
              kGatherAndScatter, [](const Asked& a) { return pat(a.collective, a.ranks); }},
    Algorithm{"two_level", "direct inside boxes and between them; three hops, for few bytes", kAllReduce,
              [](const Asked& a) { return two_level(a.ranks, a.boxes.empty() ? boxes_for(a.ranks) : a.boxes); }},
    Algorithm{"hierarchical", "direct inside boxes, rings or trees between them; each box sends as if it were one rank",
              kEvery,
              [](const Asked& a) {
                return hierarchical(a.collective, a.ranks, a.root, a.boxes.empty() ? boxes_for(a.ranks) : a.boxes);
              }},
};

bool is_rooted(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

template <typename Table, typename Name>
std::string listed(const Table& table, Name name) {
  std::string list;
  for (const auto& entry : table) list += (list.empty() ? "" : ", ") + std::string(name(entry));
  return list;
}

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

Program build(std::string_view name, Collective collective, std::uint32_t ranks, std::uint32_t root, const Boxes& boxes,
              const Shares& shares) {
  const auto found = std::ranges::find(kAlgorithms, name, &Algorithm::name);
  if (found == kAlgorithms.end()) {
    throw std::invalid_argument("there is no algorithm '" + std::string(name) + "'; there are " +
                                listed(kAlgorithms, [](const Algorithm& known) { return known.name; }));
  }
  if (std::ranges::find(found->collectives, collective) == found->collectives.end()) {
    throw std::invalid_argument("'" + std::string(name) + "' has no " + std::string(name_of(collective)) + "; it has " +
                                listed(found->collectives, [](Collective has) { return name_of(has); }));
  }
  if (ranks == 0) throw std::invalid_argument("a program needs at least 1 rank");
  if (root >= ranks) {
    throw std::invalid_argument("root " + std::to_string(root) + " is not one of the " + std::to_string(ranks) +
                                " ranks");
  }
  return found->build({collective, ranks, is_rooted(collective) ? root : 0, boxes, shares});
}

}  // namespace syntony
