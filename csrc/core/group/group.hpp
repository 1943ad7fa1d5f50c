// One rank's half of a group at work: its operations in flight, in the agreed order, over its fabric.
//
// Admission: a group has a level for each priority (priority.hpp). At its level an operation gets a sequence
// number, 1, 2, .. as they are launched, and operation q runs in the level's window q mod W, at most the W oldest
// unfinished ones at a time. They queue for that; but one whose caller waits, in a group at rest, is admitted by its
// caller on the spot. Every rank launches the operations of a priority in the same order, so the oldest unfinished
// operation of each priority is admitted on every rank that has launched it, and its frames are the oldest in its
// window's streams: a proven Program therefore finishes, then the next. Levels share no window, so nothing that one of
// them does or waits for can hold another's frames back, and ranks may launch operations of different priorities in
// different orders. (tests/csrc/test_admission.py model-checks this.)
//
// Who goes first: levels share the owner of progress and the wire. The progress engine steps the more urgent ones
// first, and says what share they leave to the others:
//
//      none     something urgent moves: no round of a shared collective, no frame that is not on its way already
//      little   it has not moved for the group's breath: one round; one frame on each stream, one instruction of each
//               lane at a time
//
// So they yield, they do not stop, as what is urgent may wait for a rank that waits for them. Who gets no share for
// kLongestHold takes a little; who has not moved for kPatience in spite of a little share takes all, as its Program may
// need more frames (proven for the streams' whole depth) to move at all. Of the low priority, all that a rank has on
// its way is at most SYNTONY_CREDIT bytes: its slices are cut so that they fit (Wire::slot_bytes), so that a wire, and
// the kernel's socket buffers before it, never hold more in front of others.
//
// Order among priorities: where the caller leaves the priority to the collective, ranks must launch in one order over
// all priorities, as they always had to; operations carry their place in it (Descriptor::ordinal), so that an
// all_to_all that meets an all_reduce is a disagreement with a name and not two ranks that wait in two levels.
//
// Failure: the first trouble (a death, a disagreement, a deadline, an abort heard from a peer) ends the group on every
// rank with one sentence. All operations in flight get it, and so does every later call.
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
  /// Operations launched so far, messages not counted.
  [[nodiscard]] std::uint64_t sequence() const;
  [[nodiscard]] std::exception_ptr error() const;

  /// Before the first operation.
  void set_aggregation(AggregationWays ways) { ways_ = std::move(ways); }

  std::shared_ptr<Work> launch(StagedCall&& call);
  /// launch(), and what can be done at once where that is little.
  std::shared_ptr<Work> start(StagedCall&& call);
  /// launch() and wait, for a caller that waits anyway. Throws the operation's error.
  void run(StagedCall&& call);
  /// The same in a group of one rank, where inputs are the result; done when it returns.
  std::shared_ptr<Work> run_alone(StagedCall&& call);
  /// For the caller of a synchronous operation, who takes its memory along: an exception of a signal's handler ends the
  /// group before it is passed on.
  void wait(Work& work);
  /// Several, one right behind the other; the Work is done when all are.
  std::shared_ptr<Work> launch(std::vector<StagedCall> parts);
  std::shared_ptr<Work> send(OutgoingMessage message);
  std::shared_ptr<Work> receive(PostedReceive receive);
  /// One round of posted messages (regroup.hpp), one at a time. Works in a failed group too, not in one that was shut
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
  /// The operations of one priority. `launched` is the callers', with the mutex; the rest the owner of progress's.
  struct Level {
    Priority priority = Priority::normal;
    std::uint64_t launched = 0;
    std::deque<std::unique_ptr<Operation>> queue;    // launched, not admitted
    std::deque<std::unique_ptr<Operation>> running;  // admitted, by sequence; finished ones leave from the front
    std::uint64_t completed = 0;
    static constexpr std::size_t kRemembered = 16;
    std::array<Descriptor, kRemembered> history;  // what we admitted, by sequence
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
  void prepare(Operation& operation);
  AggregationThread& aggregation(Priority priority);
  [[nodiscard]] std::uint32_t slice_bytes(Priority priority, const PreparedProgram& program) const;
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
  template <typename Is>
  [[nodiscard]] bool every_peer(const Is& is) const;
  [[nodiscard]] bool alone() const;
  /// The most urgent that is not done, here or, with its status, at a peer.
  [[nodiscard]] const Operation* first_owed(std::optional<PeerStatus> to) const;
  [[nodiscard]] std::optional<std::uint64_t> news() const;
  void look_for_absent();
  void look_for_disagreement();
  void look_for_late(Work::Clock::time_point now);
  [[nodiscard]] ControlPlane* plane_of(std::uint32_t peer) const;
  [[nodiscard]] std::string latecomers(const Operation& operation, std::vector<int>& guilty) const;

  std::shared_ptr<ProgressEngine> engine_;
  std::unique_ptr<Fabric> fabric_;
  std::string name_;
  std::uint32_t windows_;  // of each priority
  Work::Clock::duration breath_;
  std::shared_ptr<Recorder> recorder_;

  mutable std::mutex mutex_;  // guards Level::launched and what callers and the owner of progress share: the next eight
  std::uint64_t ordinal_ = 0;  // of the last operation whose priority the collective decided
  std::vector<std::unique_ptr<Operation>> submitted_;
  std::vector<OutgoingMessage> submitted_sends_;
  std::vector<PostedReceive> submitted_receives_;
  std::deque<std::shared_ptr<Work>>
      unfinished_;  // of operations and sends, for shutdown; done ones leave from the front
  std::exception_ptr failure_;
  Abort abort_reason_;
  std::shared_ptr<Work> aborting_;  // done when the peers have been told
  std::atomic<bool> has_submissions_{false};
  std::atomic<std::size_t> in_flight_{0};
  std::atomic<bool> unsent_{false};  // nothing is in flight, but what ended here is not all in the peers' hands
  std::atomic<bool> abort_requested_{false};
  std::atomic<PostRound*> round_{nullptr};
  std::atomic<bool> closed_{false};

  // The owner of progress only, from here.
  std::array<Level, kPriorities> levels_;
  AggregationWays ways_;
  std::array<std::unique_ptr<AggregationThread>, kPriorities> aggregation_;  // of levels that have used it
  std::unique_ptr<Operation> spare_;  // of run() and start(), or with the mutex run_alone(): used again and again
  PointToPoint messages_;
  std::size_t messages_in_flight_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> scratch_;  // by window, grown as needed
  std::vector<std::size_t> scratch_bytes_;
  std::uint64_t moves_ = 0;       // passes in which something moved
  std::uint64_t moves_seen_ = 0;  // by look_for_late(), at stalled_since_
  Work::Clock::time_point stalled_since_;
  Work::Clock::time_point last_inquiry_;
  std::optional<Work::Clock::time_point> puzzled_since_;  // by a frame that the control plane shall explain
  bool failed_ = false;
  std::optional<std::uint64_t> seen_news_;      // of the planes, by all_there() ..
  bool all_there_ = true;                       // .. which found this
  std::optional<std::uint64_t> compared_news_;  // likewise by look_for_disagreement(), when so many operations
  std::uint64_t compared_ = 0;                  // were admitted
  std::uint64_t admitted_ = 0;
  std::future<void> record_left_;  // after a failure
};

}  // namespace syntony
