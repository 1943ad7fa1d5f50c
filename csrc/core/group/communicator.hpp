// The runtime's front end in C++: ranks, transports and the choice of Programs. Python and torch are thin layers over
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bootstrap.hpp"
#include "core/call.hpp"
#include "core/program/program.hpp"
#include "core/progress/work.hpp"
#include "core/selection/selector.hpp"

namespace syntony {

class ProgressEngine;
class Group;
class RailBalance;
struct StagedCall;
class PreparedProgram;
class Tuner;

struct CommunicatorOptions {
  std::chrono::milliseconds timeout{30 * 60 * 1000};  // split, shrink: 0 means the old group's
  std::string name = "default";                       // used in messages
  /// Each rank's number in the job, for records; empty means 0, 1, ..
  std::vector<std::uint32_t> job_ranks{};  // NOLINT(readability-redundant-member-init)
  /// split, shrink: null means the old group's.
  std::shared_ptr<const Tuner> tuner{};  // NOLINT(readability-redundant-member-init)
};

/// A group of ranks. All methods are thread-safe. Ranks must call collectives in the same order; calls with an explicit
/// `priority` only need the same order within that priority. Ranks must pass the same priority and partition. Every
/// rank has its own Communicator; several ranks may live in one process (tests), with separate or shared progress
/// engines.
class Communicator {
 public:
  /// Meets the other ranks through `bootstrap` (which may be destroyed afterwards). Collective.
  Communicator(std::shared_ptr<ProgressEngine> engine, Bootstrap& bootstrap, const CommunicatorOptions& options = {});
  ~Communicator();  // shutdown()
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] std::uint32_t rank() const;
  [[nodiscard]] std::uint32_t size() const;
  /// Ranks by host, each list ascending; used by `hierarchical`.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> boxes() const;
  /// True if some ranks share processors (fabric.hpp).
  [[nodiscard]] bool crowded() const;

  /// A group of the ranks that pass the same `color`, ordered by `key`, then by rank here; null without a color.
  /// Collective over this group, and needs nothing else (core/group/regroup.hpp). Loaded Programs are not inherited.
  std::shared_ptr<Communicator> split(std::optional<std::uint64_t> color, std::int64_t key,
                                      CommunicatorOptions options);
  /// A group of the ranks that are alive and that nobody `excluded`, in their old order; works even if this group has
  /// failed. Collective over them. Shuts this group down. Throws Error: `aborted` if another rank excluded this one,
  /// `dead` if a rank died meanwhile (shrink again), `timeout` naming the missing ranks.
  std::shared_ptr<Communicator> shrink(std::span<const std::uint32_t> excluded, CommunicatorOptions options);
  /// Each rank's rank in the group that this one was split or shrunk from; its own rank if there is none.
  [[nodiscard]] const std::vector<std::uint32_t>& members() const { return members_; }

  /// Starts a collective. Blocks may differ in size if the collective has several; every rank must know all sizes
  /// unless it is a direct all_to_all. All counts that ranks must know are part of the fingerprint; those of an uneven
  /// all_to_all are compared pair by pair when its first frames arrive. With a partition, the operation runs as
  /// consecutive parts of at most that many bytes of the whole buffer. Each part takes the next elements of all blocks
  /// and is an ordinary operation of its size (so a sum may be associated in a different order). More
  /// urgent operations can run between the parts. Returns null unless async: the operation
  /// is then over, and its error has been thrown. Throws Error(invalid) immediately for bad arguments; later failures
  /// are reported by the Work.
  std::shared_ptr<Work> run(Call call);
  /// An all_reduce over several buffers, the call's blocks, as if they were concatenated: many small ones cost as much
  /// as one. They are packed and unpacked here, so this is meant for kilobytes.
  std::shared_ptr<Work> all_reduce_together(Call call);
  std::shared_ptr<Work> barrier(const CallOptions& options = {});

  /// Tagged point-to-point messages, independent of the collectives. source == -1 receives from any rank.
  std::shared_ptr<Work> send(const std::byte* data, std::size_t bytes, std::uint32_t destination, std::uint64_t tag,
                             const CallOptions& options = {});
  std::shared_ptr<Work> receive(std::byte* data, std::size_t bytes, int source, std::uint64_t tag,
                                const CallOptions& options = {});

  /// Makes a verified Program available as the algorithm `name`. The caller (Python's loader) has had it checked.
  void add_program(const std::string& name, std::shared_ptr<const Program> program);
  /// Makes `name` an algorithm that depends on the size (core/selection/selector.hpp). Every rank must pass the same.
  void set_size_ranges(const std::string& name, Collective collective, std::vector<SizeRange> ranges);
  /// Which hosts are near each other (core/selection/selector.hpp). Every rank must pass the same.
  void set_levels(std::vector<std::vector<std::uint32_t>> levels);
  /// How much each rank sums (core/selection/selector.hpp). Every rank must pass the same.
  void set_shares(std::vector<std::uint32_t> shares);
  /// The algorithm that a call would run, and why (core/selection/selector.hpp).
  [[nodiscard]] std::pair<std::string, std::string> choice(Collective collective, std::uint32_t root, std::size_t bytes,
                                                           const std::string& algorithm = "auto");
  /// What the ranks told each other when they met, by rank (core/selection/tuner.hpp); empty without tuners.
  [[nodiscard]] const std::vector<std::string>& metadata() const;
  /// The Program that a call would run: what `auto` resolves to for this size.
  [[nodiscard]] std::shared_ptr<const PreparedProgram> program_for(Collective collective, std::uint32_t root,
                                                                   std::size_t bytes,
                                                                   const std::string& algorithm = "auto");

  /// Fails the group on all ranks, naming this rank and `why`.
  void abort(const std::string& why);
  /// Finishes the operations in flight and says goodbye. Further calls throw Error(aborted).
  void shutdown();
  void set_timeout(std::chrono::milliseconds timeout);
  /// The default for calls that do not pass one.
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_.load(); }
  /// The default for calls that do not pass one; every rank must set the same. None: usual_priority(collective).
  void set_priority(std::optional<Priority> priority) { priority_ = priority; }
  [[nodiscard]] std::optional<Priority> priority() const { return priority_.load(); }
  /// With true, all_reduce and reduce_scatter that name no algorithm use `pairwise`.
  void set_canonical(bool canonical) { canonical_ = canonical; }
  [[nodiscard]] bool canonical() const { return canonical_.load(); }
  /// Sequence number of the last collective started.
  [[nodiscard]] std::uint64_t sequence() const;
  /// The last operations and the counters of this group (core/recorder/recorder.hpp). Usable from any thread at any
  /// time.
  [[nodiscard]] const std::shared_ptr<Recorder>& recorder() const;
  /// The error that ended the group, if it has ended.
  [[nodiscard]] std::exception_ptr error() const;

 private:
  /// What runs the call. Throws Error(invalid) for an algorithm that cannot run it.
  [[nodiscard]] Selector::Selection choose(const Call& call);
  /// `crossed` and `counts` are those of the whole call, of which this one may be a part.
  [[nodiscard]] StagedCall staged(Call&& call, bool crossed, std::uint64_t counts);
  /// Prepares a large all_reduce for network cards that fail or recover; it may launch a comparison before it.
  void balance(StagedCall& staged);
  std::shared_ptr<Work> submit(StagedCall&& staged);
  std::shared_ptr<Work> submit(std::vector<StagedCall> parts);
  /// What `auto` means when sums are to be canonical.
  [[nodiscard]] std::string asked(Collective collective, const std::string& algorithm) const;
  [[nodiscard]] Lifetime lifetime(const CallOptions& options) const;
  std::shared_ptr<Work> finish(std::shared_ptr<Work> work, const CallOptions& options) const;

  template <typename Choose>
  std::shared_ptr<Communicator> regroup(CommunicatorOptions options, const Choose& choose);

  /// Leaves the metadata empty if there is no Tuner.
  void tune();

  [[nodiscard]] std::optional<Priority> priority_of(const CallOptions& options) const {
    return options.priority ? options.priority : priority_.load();
  }

  std::atomic<std::chrono::milliseconds> timeout_;
  std::atomic<std::optional<Priority>> priority_;
  std::atomic<bool> canonical_{false};
  std::shared_ptr<const Tuner> tuner_;
  std::vector<std::uint32_t> members_;
  std::mutex regrouping_;
  std::uint32_t regroupings_ = 0;
  std::unique_ptr<Selector> selector_;
  std::unique_ptr<RailBalance>
      balance_;  // null: hosts have one network card, or two ranks, for which it would do nothing
  std::unique_ptr<Group> group_;
};

}  // namespace syntony
