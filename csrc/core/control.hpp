// The control plane: what ranks tell each other apart from the data, so that failures can be explained.
//
// It reaches every member of a group, not only the Program's neighbours: ShmBoard (shm_segment.hpp) covers the ranks on
// this host, TcpControl (tcp_control.hpp) the others. It is never on the fast path: announce() is a few stores (shared
// memory) or nothing (TCP answers when asked), and the rest happens only once an operation is late or wrong.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/kernels/dtype.hpp"
#include "core/priority.hpp"
#include "core/program/block.hpp"
#include "core/program/program.hpp"

namespace syntony {

/// What a rank says about an operation it started. Plain data: stored in shared memory and sent in control messages.
struct Descriptor {
  std::uint64_t sequence = 0;     // from 1, per priority in the group; 0: none yet
  std::uint64_t ordinal = 0;      // from 1, over operations whose priority the collective decided; 0: the caller did
  std::uint64_t fingerprint = 0;  // hash of everything ranks must agree on (below)
  std::uint64_t elements = 0;     // of the whole operation; 0 where ranks know only their own (uneven all_to_all)
  std::uint64_t counts = 0;       // counts_of(..) if `elements` does not determine them (uneven parts, partitions)
  std::uint64_t program = 0;      // Program::hash()
  std::uint32_t root = 0;
  Collective collective = Collective::all_reduce;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t barrier = 0;
  Priority priority = Priority::normal;
  std::uint8_t average = 0;              // 1: a sum divided by the number of ranks
  std::array<std::uint8_t, 6> unused{};  // explicit padding, so that no uninitialized bytes are sent
};
static_assert(sizeof(Descriptor) == 64);

/// "all_reduce #17 (sum of 1024 x float32)"; "high all_reduce #2 (..)" if the caller chose the priority. The number
/// then counts within that priority.
[[nodiscard]] std::string describe(const Descriptor& descriptor);
/// "count 1024 against 2048 and dtype float32 against float64": what differs, for a mismatch.
[[nodiscard]] std::string difference(const Descriptor& mine, const Descriptor& theirs);
[[nodiscard]] std::uint64_t fingerprint_of(const Descriptor& descriptor);
/// A hash of the element counts of all blocks, never 0.
[[nodiscard]] std::uint64_t counts_of(std::span<const Block> blocks);

struct PeerStatus {
  enum class State : std::uint8_t { alive, left, dead };
  State state = State::alive;
  // By priority:
  std::array<Descriptor, kPriorities> started;         // the last operation it entered, as far as known here
  std::array<std::uint64_t, kPriorities> completed{};  // sequence of the last operation it completed
  bool known = false;                                  // false: nothing received yet (TCP before an answer)
};

/// Posted messages (ControlPlane::post) are numbered by regrouping (1, 2, ..) and round. A message is overwritten two
/// regroupings or eight rounds later. No rank can miss one, because a regrouping begins with a round of all ranks and a
/// round ends when all have posted.
inline constexpr std::size_t kPostSlots = 16;
inline constexpr std::size_t kLongestPost = 8000;
[[nodiscard]] constexpr std::uint64_t post_number(std::uint32_t regrouping, std::uint32_t round) {
  return std::uint64_t{regrouping} << 32U | round;
}
[[nodiscard]] constexpr std::size_t post_slot(std::uint64_t number) {
  constexpr std::size_t kHalf = kPostSlots / 2;
  return ((number >> 32U) % 2) * kHalf + number % kHalf;
}
void check_post(std::string_view message);

/// Why a group ended, as told by one rank to all.
struct Abort {
  Error::Kind kind = Error::Kind::aborted;
  std::vector<int> ranks;  // the ranks at fault
  std::string sentence;    // complete; names the ranks and the operation
};

class ControlPlane {
 public:
  virtual ~ControlPlane() = default;
  /// Ranks of the group that this plane reaches (never this rank itself).
  [[nodiscard]] virtual std::span<const std::uint32_t> peers() const = 0;
  virtual void announce(const Descriptor& started) = 0;
  virtual void complete(Priority priority, std::uint64_t sequence) = 0;
  /// Asks peers for their current status, if that takes a message. Called only when an operation is late.
  virtual void inquire() = 0;
  [[nodiscard]] virtual PeerStatus status(std::uint32_t peer) const = 0;
  /// How many of the peers have left or died.
  [[nodiscard]] virtual std::size_t ended() const = 0;
  /// The descriptor a peer announced for `sequence` of `priority`, if still remembered.
  [[nodiscard]] virtual std::optional<Descriptor> announced(std::uint32_t peer, Priority priority,
                                                            std::uint64_t sequence) const = 0;
  /// The descriptor a peer announced under `ordinal` (not 0), whatever its priority.
  [[nodiscard]] virtual std::optional<Descriptor> announced(std::uint32_t peer, std::uint64_t ordinal) const = 0;
  /// How a peer ended, as a phrase to follow its name: "lost its connection (Connection reset by peer)". Empty while it
  /// lives, or if PeerStatus already says everything.
  [[nodiscard]] virtual std::string end_of(std::uint32_t /*peer*/) const { return {}; }
  /// A counter that grows whenever the status of any peer changes, so that callers need not poll thousands of peers.
  /// Empty if changes can only be found by polling.
  [[nodiscard]] virtual std::optional<std::uint64_t> news() const { return std::nullopt; }
  /// Tells all peers that the group has failed. The first abort wins.
  virtual void abort(const Abort& reason) = 0;
  [[nodiscard]] virtual std::optional<Abort> aborted() const = 0;
  /// Posts a message that every peer can read under `number`, even after the group has failed. This lets ranks that
  /// have nothing but this group meet again (core/group/regroup.hpp). Each slot keeps one message. Throws Error(system)
  /// for more than kLongestPost bytes.
  virtual void post(std::uint64_t number, std::string_view message) = 0;
  [[nodiscard]] virtual std::optional<std::string> posted(std::uint32_t peer, std::uint64_t number) const = 0;
  /// Says goodbye: from now on the exit of this process is not a failure.
  virtual void leave() = 0;
  /// Reads what has arrived and notices deaths. Non-blocking.
  virtual void progress() = 0;
  /// Readable when progress() has something to do (deaths included).
  [[nodiscard]] virtual std::span<const int> descriptors() const = 0;
};

}  // namespace syntony
