// How the ranks of a group make another group using only the control plane of the group they have.
//
//      split    each rank posts its color and key             -> ranks of one color meet, in the order of their keys
//      shrink   each rank posts whom it knows to be gone, until all post the same -> the others meet
//
// Both are a sequence of rounds, each an all_gather of posted messages (ControlPlane::post). A sequence begins with a
// round of all ranks; the members of the new group then introduce themselves as in any group, with the rounds as their
// Bootstrap. No particular rank must survive, and there is no server.
//
// Shrinking works in a failed group. In a round, the place of a rank that died or left without posting stays empty, and
// every rank that noticed counts it as gone; the next round spreads that. In shared memory a message is seen by all or
// by none, so all decide alike. Over TCP a rank may die having told only some: if that happens in the last round, the
// new group fails too (or cannot form), and says who died.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/bootstrap.hpp"
#include "core/progress/work.hpp"

namespace syntony {

class Fabric;
class Group;

/// One all_gather of posted messages. The owner of progress works on it (Group::exchange).
struct PostRound {
  std::uint64_t number = 0;
  std::string message;
  std::vector<std::uint32_t> members;  // ranks of the group, including this one
  bool tolerant = false;               // allows a failed group and members that are gone; else they are errors
  Work::Clock::time_point deadline;
  std::vector<std::optional<std::string>> messages;  // by place in `members`; empty: that member is gone
  std::shared_ptr<Work> work;
  bool posted = false;
  std::atomic<bool> given_up = false;  // set by its caller

  /// Posts the message and reads those that are there. True once every place is decided. Throws Error(dead or aborted)
  /// naming a rank that is gone, Error(timeout) naming the missing ones.
  bool complete(const Fabric& fabric, Work::Clock::time_point now);
  /// Posts a notice that there will be no message, in the place that the others wait for next.
  void give_up(const Fabric& fabric) const;
};

/// One regrouping: decides who will be in the new group, then serves as their Bootstrap. `number` counts a group's
/// regroupings from 1, equally on all ranks.
class Regroup final : public Bootstrap {
 public:
  Regroup(Group& group, std::uint32_t number, Work::Clock::time_point deadline);

  /// Selects the ranks with this rank's color, ordered by key, then by rank. False without a color: this rank is in no
  /// new group. Throws what PostRound::complete throws, and the group's error if it has failed.
  bool split(std::optional<std::uint64_t> color, std::int64_t key);
  /// Selects the ranks that are neither `excluded` by a survivor nor gone, in their old order. Throws Error(aborted) if
  /// another rank has excluded this one, Error(timeout) naming the missing ranks.
  void shrink(std::span<const std::uint32_t> excluded);

  /// Ranks in the old group, by rank in the new one.
  [[nodiscard]] const std::vector<std::uint32_t>& members() const { return members_; }

  [[nodiscard]] std::uint32_t rank() const override;
  [[nodiscard]] std::uint32_t size() const override { return static_cast<std::uint32_t>(members_.size()); }
  std::vector<std::string> all_gather(const std::string& name, const std::string& blob) override;
  /// Posted messages can be read on the network; the group's token cannot.
  [[nodiscard]] std::string secret() const override;

 private:
  std::vector<std::optional<std::string>> exchange(std::string message, bool tolerant);

  Group& group_;
  std::uint32_t number_;
  std::uint32_t round_ = 0;
  Work::Clock::time_point deadline_;
  std::vector<std::uint32_t> members_;  // the members of the next round
};

}  // namespace syntony
