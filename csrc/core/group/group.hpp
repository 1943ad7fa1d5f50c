// One rank's half of a group at work: its operations in flight, in the agreed order, over its fabric.
//
// Admission: a group has one level per priority (priority.hpp). Each level numbers its operations 1, 2, .. as they are
// launched. Operation q runs in the level's window q mod W, and at most the W oldest unfinished ones run at a time; the
// rest queue. If the group is idle and the caller waits, the caller admits its operation itself, immediately. Every
// rank launches the operations of a priority in the same order, so the oldest unfinished operation of each priority is
// admitted on every rank that has launched it, and its frames are the oldest in its window's streams: a verified
// Program therefore finishes, then the next. Levels share no window, so nothing that one level does or waits for can
// block another's frames, and ranks may launch operations of different priorities in different orders.
// (tests/csrc/test_admission.py model-checks this.)
//
// Who goes first: levels share the owner of progress and the wire. The progress engine steps more urgent levels first
// and tells the others what share is left to them:
//
//     none     something urgent moves: no round of a shared collective, no new frame
//     little   it has not moved for the group's breath: one round; one frame on each stream, one instruction of each
//              lane at a time
//
// Less urgent levels thus slow down but do not stop, because the urgent operation may wait for a rank that waits for
// them. A level with no share for kLongestHold takes a little. An operation that has not moved for kPatience in spite
// of a little share takes all, because its Program may need more frames to move at all (it is verified for the streams'
// whole depth). A rank has at most SYNTONY_CREDIT bytes of low-priority data in flight: slices are cut to fit
// (Wire::slot_bytes), so that a wire and the kernel's socket buffers never hold more ahead of other traffic.
//
// Order among priorities: if the caller leaves the priority to the collective, ranks must launch in one order over all
// priorities. Operations carry their place in that order (Descriptor::ordinal), so that an all_to_all that meets an
// all_reduce is reported as a mismatch instead of two ranks waiting in two levels.
//
// Failure: the first failure (a death, a mismatch, a deadline, an abort from a peer) ends the group on every rank with
// one message. All operations in flight and every later call report it.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/group/fabric.hpp"
#include "core/group/regroup.hpp"
#include "core/group/staging.hpp"
#include "core/in_network/aggregation_ways.hpp"
#include "core/one_host/shared_operation.hpp"
#include "core/program/prepared_program.hpp"
#include "core/progress/executor.hpp"
#include "core/progress/point_to_point.hpp"
#include "core/progress/progress_engine.hpp"
#include "core/recorder/recorder.hpp"

namespace syntony {

class AggregationThread;

class Group final : public Steppable {
 public:
  /// `members`: the ranks' numbers in the job.
  Group(std::shared_ptr<ProgressEngine> engine, std::unique_ptr<Fabric> fabric, std::string name,
        std::vector<std::uint32_t> members);
  ~Group() override;

  [[nodiscard]] const Fabric& fabric() const { return *fabric_; }
  [[nodiscard]] const std::shared_ptr<ProgressEngine>& engine() const { return engine_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::shared_ptr<Recorder>& recorder() const { return recorder_; }
  /// Operations launched so far, without messages.
  [[nodiscard]] std::uint64_t sequence() const;
  [[nodiscard]] std::exception_ptr error() const;

  /// Call before the first operation.
  void set_aggregation(AggregationWays ways) { ways_ = std::move(ways); }

  std::shared_ptr<Work> launch(StagedCall&& call);
  /// launch(), and small operations also run as far as they can immediately.
  std::shared_ptr<Work> start(StagedCall&& call);
  /// launch() and wait, for a caller that waits anyway. Throws the operation's error.
  void run(StagedCall&& call);
  /// The same for a group of one rank, where the input is the result; done when it returns.
  std::shared_ptr<Work> run_alone(StagedCall&& call);
  /// For a synchronous operation, whose caller's memory goes away when it returns: if a signal handler throws, the
  /// group is ended before the exception is passed on.
  void wait(Work& work);
  /// Launches several, one right behind the other; the Work is done when all are.
  std::shared_ptr<Work> launch(std::vector<StagedCall> parts);
  std::shared_ptr<Work> send(OutgoingMessage message);
  std::shared_ptr<Work> receive(PostedReceive receive);
  /// One round of posted messages (regroup.hpp), one at a time. Works in a failed group, but not in one that was shut
  /// down.
  void exchange(PostRound& round);
  void abort(const std::string& why);
  void shutdown();

  // Steppable: called by the owner of progress only.
  bool begin() override;
  bool step(Priority priority, Share share) override;
  [[nodiscard]] Work::Clock::duration breath() const override { return breath_; }
  [[nodiscard]] bool busy() const override {
    return in_flight_.load(std::memory_order_acquire) > 0 || unsent_.load(std::memory_order_relaxed);
  }
  void tend() override;
  void sleeping(bool asleep) override;
  bool meets_on(std::uint32_t cpu) override;
  [[nodiscard]] std::optional<std::uint32_t> emptier(std::uint32_t cpu,
                                                     std::span<const std::uint32_t> allowed) const override;

 private:
  struct Operation;
  /// The operations of one priority. Callers use `launched`, under the mutex; the owner of progress uses the rest.
  struct Level {
    Priority priority = Priority::normal;
    std::uint64_t launched = 0;
    std::deque<std::unique_ptr<Operation>> queue;     // launched, not admitted
    std::vector<std::unique_ptr<Operation>> running;  // admitted, by sequence, few; finished ones leave at the front
    std::uint64_t completed = 0;
    static constexpr std::size_t kRemembered = 16;
    std::array<Descriptor, kRemembered> history;  // what this rank admitted, by sequence
  };
  template <typename Queue, typename Item>
  std::shared_ptr<Work> enqueue(Queue& queue, Item item, Recorder::Facts facts);
  void leave_record(const std::string& why);
  void refuse_after_end() const;
  [[nodiscard]] std::exception_ptr shut_down() const;

  void advance(PostRound& round);
  void take_submissions();
  void look_for_unsent();
  void collect();
  std::unique_ptr<Operation> open(StagedCall&& call, std::unique_ptr<Operation> used);
  std::shared_ptr<Work> submit(StagedCall&& call);
  std::shared_ptr<Work> enter(StagedCall& call);
  std::shared_ptr<Work> enter_acquired(StagedCall& call);
  bool pass();
  template <typename Moving>
  bool watched(const Moving& move);
  void admit(Level& level);
  void admit(Level& level, std::unique_ptr<Operation> operation);
  void reconsider(Operation& operation);
  void prepare(Operation& operation);
  AggregationThread& aggregation(Priority priority);
  [[nodiscard]] std::uint32_t slice_bytes(const Operation& operation) const;
  bool advance(Level& level, Share share);
  bool advance(Operation& operation, Share share);
  void finish(Operation& operation);
  static void unpack(const Operation& operation);
  void complete(Level& level);
  void fail(Error::Kind kind, const std::string& sentence, const std::vector<int>& ranks);
  void end(const Abort& reason);
  void explain(const UnexpectedFrame& frame);
  void explain(const SharedMismatch& mismatch);
  void explain(const Error& error);
  [[nodiscard]] std::string disagreement(std::uint32_t peer, const Descriptor& ours, const Descriptor& theirs) const;
  void fail_as_refused(const Error& error);
  bool heard_of_the_end(const Error* here = nullptr);
  [[nodiscard]] bool all_there();
  [[nodiscard]] bool alone() const;
  /// The most urgent operation that is not done here or, given its status, at a peer.
  [[nodiscard]] const Operation* first_owed(std::optional<PeerStatus> to) const;
  [[nodiscard]] std::optional<std::uint64_t> news() const;
  void look_for_absent();
  void look_for_disagreement();
  void look_for_late(Work::Clock::time_point now);
  void look_for_cut_off(Work::Clock::time_point now);
  [[nodiscard]] bool waits_for(std::uint32_t peer) const;
  [[nodiscard]] ControlPlane* plane_of(std::uint32_t peer) const;
  struct Late;
  [[nodiscard]] Late latecomers(const Operation& operation) const;
  void warn_of_wait(Work::Clock::time_point now);

  std::shared_ptr<ProgressEngine> engine_;
  std::unique_ptr<Fabric> fabric_;
  std::string name_;
  std::uint32_t windows_;  // per priority
  Work::Clock::duration breath_;
  std::shared_ptr<Recorder> recorder_;

  mutable std::mutex mutex_;   // guards Level::launched and the next eight, shared by callers and the owner of progress
  std::uint64_t ordinal_ = 0;  // of the last operation whose priority the collective decided
  std::vector<std::unique_ptr<Operation>> submitted_;
  std::vector<OutgoingMessage> submitted_sends_;
  std::vector<PostedReceive> submitted_receives_;
  std::deque<std::shared_ptr<Work>> unfinished_;  // operations and sends, for shutdown; done ones leave at the front
  std::exception_ptr failure_;
  Abort abort_reason_;
  std::shared_ptr<Work> aborting_;  // done when the peers have been told
  std::atomic<bool> has_submissions_{false};
  std::atomic<std::size_t> in_flight_{0};
  std::atomic<bool> unsent_{false};  // nothing is in flight, but not everything sent has been handed to the peers
  std::atomic<bool> abort_requested_{false};
  std::atomic<PostRound*> round_{nullptr};
  std::atomic<bool> closed_{false};

  // From here on, used by the owner of progress only.
  std::array<Level, kPriorities> levels_;
  AggregationWays ways_;
  std::array<std::unique_ptr<AggregationThread>, kPriorities> aggregation_;  // of levels that have used it
  std::unique_ptr<Operation> spare_;  // reused by run() and start(), or under the mutex by run_alone()
  PointToPoint messages_;
  std::size_t messages_in_flight_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;  // by window, grown as needed
  std::vector<std::size_t> scratch_bytes_;
  std::uint64_t moves_ = 0;       // passes in which something moved
  std::uint64_t moves_seen_ = 0;  // by look_for_late() at stalled_since_
  Work::Clock::time_point stalled_since_;
  std::chrono::seconds wait_warning_ = Fabric::wait_warning();  // without progress; 0: never
  std::chrono::seconds warn_after_ = wait_warning_;             // twice as long after each warning
  Work::Clock::time_point last_inquiry_;
  std::optional<Work::Clock::time_point> puzzled_since_;  // by a frame that the control plane must explain
  // A connection's end that the control plane must explain, and when it was noticed.
  std::optional<std::pair<Error, Work::Clock::time_point>> cut_off_;
  bool failed_ = false;
  std::optional<std::uint64_t> seen_news_;      // of the control planes, last seen by all_there() ..
  bool all_there_ = true;                       // .. and its result then
  std::optional<std::uint64_t> compared_news_;  // likewise for look_for_disagreement(), with the number of
  std::uint64_t compared_ = 0;                  // operations admitted then
  std::uint64_t admitted_ = 0;
  std::future<void> record_left_;  // after a failure
};

}  // namespace syntony
