#include "core/group/regroup.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/group/fabric.hpp"
#include "core/group/group.hpp"

namespace syntony {
namespace {

constexpr std::string_view kGivenUp = "\x18";  // no other message begins like this

const ControlPlane& plane_of(const Fabric& fabric, std::uint32_t peer) {
  return **std::ranges::find_if(fabric.planes(), [&](const std::unique_ptr<ControlPlane>& plane) {
    return std::ranges::find(plane->peers(), peer) != plane->peers().end();
  });
}

std::string text_of(const std::set<std::uint32_t>& ranks) {
  std::string text;
  for (const std::uint32_t rank : ranks) text += std::to_string(rank) + " ";
  return text;
}

std::set<std::uint32_t> ranks_in(const std::string& text) {
  std::istringstream words(text);
  std::set<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; words >> rank;) ranks.insert(rank);
  return ranks;
}

}  // namespace

void PostRound::give_up(const Fabric& fabric) const {
  for (const std::unique_ptr<ControlPlane>& plane : fabric.planes())
    plane->post(posted ? number + 1 : number, kGivenUp);
}

bool PostRound::complete(const Fabric& fabric, Work::Clock::time_point now) {
  if (!std::exchange(posted, true)) {
    for (const std::unique_ptr<ControlPlane>& plane : fabric.planes()) plane->post(number, message);
  }
  for (const std::unique_ptr<ControlPlane>& plane : fabric.planes()) plane->progress();
  messages.assign(members.size(), std::nullopt);
  std::vector<int> absent;
  std::string names;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::uint32_t member = members[i];
    if (member == fabric.rank()) {
      messages[i] = message;
      continue;
    }
    const ControlPlane& plane = plane_of(fabric, member);
    const PeerStatus::State state = plane.status(member).state;  // first: a rank posts only while it is alive
    messages[i] = plane.posted(member, number);
    if (messages[i] || (tolerant && state != PeerStatus::State::alive)) continue;
    if (state != PeerStatus::State::alive) {
      const bool died = state == PeerStatus::State::dead;
      throw Error(died ? Error::Kind::dead : Error::Kind::aborted,
                  fabric.name_of_rank(member) + (died ? " died" : " left") + " while a group was made out of this one",
                  {static_cast<int>(member)});
    }
    absent.push_back(static_cast<int>(member));
    names += (names.empty() ? "" : ", ") + fabric.name_of_rank(member);
  }
  if (absent.empty()) return true;
  if (now > deadline) {
    throw Error(Error::Kind::timeout,
                "rank " + std::to_string(fabric.rank()) +
                    " waited in vain to make another group out of this one: " + names + " did not come",
                absent);
  }
  return false;
}

Regroup::Regroup(Group& group, std::uint32_t number, Work::Clock::time_point deadline)
    : group_(group), number_(number), deadline_(deadline), members_(group.fabric().size()) {
  std::iota(members_.begin(), members_.end(), 0U);
}

std::vector<std::optional<std::string>> Regroup::exchange(std::string message, bool tolerant) {
  PostRound round{.number = post_number(number_, round_++),
                  .message = std::move(message),
                  .members = members_,
                  .tolerant = tolerant,
                  .deadline = deadline_,
                  .messages = {},
                  .work = nullptr};
  group_.exchange(round);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (round.messages[i] != kGivenUp) continue;
    throw Error(Error::Kind::aborted,
                group_.fabric().name_of_rank(members_[i]) +
                    " was interrupted by a signal while a group was made out of " + group_.name(),
                {static_cast<int>(members_[i])});
  }
  return std::move(round.messages);
}

bool Regroup::split(std::optional<std::uint64_t> color, std::int64_t key) {
  std::vector<std::tuple<std::int64_t, std::uint32_t>> mine;
  const auto messages = exchange(color ? std::to_string(*color) + " " + std::to_string(key) : "", false);
  for (const std::uint32_t rank : members_) {
    std::istringstream words(*messages[rank]);
    std::uint64_t their_color = 0;
    std::int64_t their_key = 0;
    if (color && words >> their_color >> their_key && their_color == *color) mine.emplace_back(their_key, rank);
  }
  std::ranges::sort(mine);
  members_.clear();
  for (const auto& [ignored, rank] : mine) members_.push_back(rank);
  return color.has_value();
}

void Regroup::shrink(std::span<const std::uint32_t> excluded) {
  const std::uint32_t self = group_.fabric().rank();
  std::set<std::uint32_t> gone(excluded.begin(), excluded.end());
  for (bool agreed = false; !agreed;) {
    std::erase_if(members_, [&](std::uint32_t rank) { return gone.contains(rank); });
    const auto messages = exchange(text_of(gone), true);
    const std::set<std::uint32_t> said = gone;
    agreed = true;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const std::set<std::uint32_t> theirs = messages[i] ? ranks_in(*messages[i]) : std::set<std::uint32_t>{};
      agreed &= messages[i].has_value() && theirs == said;
      if (!messages[i]) gone.insert(members_[i]);
      if (theirs.contains(self)) {
        throw Error(Error::Kind::aborted,
                    group_.fabric().name_of_rank(members_[i]) + " has shrunk group " + group_.name() +
                        " without rank " + std::to_string(self),
                    {static_cast<int>(members_[i])});
      }
      gone.insert(theirs.begin(), theirs.end());
    }
  }
}

std::uint32_t Regroup::rank() const {
  return static_cast<std::uint32_t>(std::ranges::find(members_, group_.fabric().rank()) - members_.begin());
}

std::string Regroup::secret() const { return group_.fabric().secret(); }

std::vector<std::string> Regroup::all_gather(const std::string& /*name*/, const std::string& blob) {
  std::vector<std::string> blobs;
  // A failed group still carries posted messages; only the members themselves must be alive.
  for (std::optional<std::string>& message : exchange(blob, true)) {
    if (!message) {
      const std::uint32_t lost = members_[blobs.size()];
      throw Error(
          Error::Kind::dead,
          group_.fabric().name_of_rank(lost) + " is gone before it joined the group made out of " + group_.name(),
          {static_cast<int>(lost)});
    }
    blobs.push_back(std::move(*message));
  }
  return blobs;
}

}  // namespace syntony
