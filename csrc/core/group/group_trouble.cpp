// How a Group notices failures, explains them, and ends.
#include <algorithm>
#include <iterator>
#include <utility>

#include "core/group/group.hpp"
#include "core/group/operation.hpp"
#include "core/process/log.hpp"
#include "core/recorder/recorder_dump.hpp"

namespace syntony {
namespace {

using Clock = Work::Clock;
constexpr std::chrono::milliseconds kFirstInquiry{2};  // after nothing has moved for this long
constexpr std::chrono::milliseconds kInquiryInterval{100};
constexpr std::chrono::milliseconds kLongestPuzzle{10000};
// Data connections may end so much earlier than it is known why; ranks that are relayed the news hear it later.
constexpr std::chrono::milliseconds kNewsOfEnd{3000}, kNewsOfEndPerRank{2};
constexpr const char* kMessage = "a point-to-point message";
constexpr std::size_t kMostNamed = 8;  // of the ranks that are late

/// What a peer announced in the place of our operation, if known.
std::optional<Descriptor> counterpart(const ControlPlane& plane, std::uint32_t peer, const Descriptor& ours) {
  if (ours.ordinal != 0) {
    if (const std::optional<Descriptor> theirs = plane.announced(peer, ours.ordinal)) return theirs;
  }
  return plane.announced(peer, ours.priority, ours.sequence);
}

/// The last operation that a peer has started in the common order; if there is none, the last of this priority.
const Descriptor& last_started(const PeerStatus& status, Priority priority) {
  const Descriptor& last = *std::ranges::max_element(status.started, {}, &Descriptor::ordinal);
  return last.ordinal != 0 ? last : status.started[index_of(priority)];
}

std::string seconds(Clock::duration duration) {
  const auto tenths = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

ControlPlane* Group::plane_of(std::uint32_t peer) const {
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) {
    if (std::ranges::find(plane->peers(), peer) != plane->peers().end()) return plane.get();
  }
  return nullptr;
}

void Group::fail(Error::Kind kind, const std::string& sentence, const std::vector<int>& ranks) {
  if (failed_) return;
  const Abort reason{kind, ranks, sentence};
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) plane->abort(reason);
  recorder_->set_failure(sentence);
  end(reason);
  leave_record(sentence);
}

void Group::end(const Abort& reason) {
  failed_ = true;
  std::exception_ptr failure = std::make_exception_ptr(
      Error(reason.kind, "[rank " + std::to_string(fabric_->rank()) + "] " + reason.sentence, reason.ranks));
  std::shared_ptr<Work> aborting;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) {
      failure = failure_;
    } else {
      failure_ = failure;
    }
    collect();  // submissions are refused from now on, so these are the last
    aborting.swap(aborting_);
  }
  for (std::unique_ptr<AggregationThread>& thread : aggregation_) thread.reset();  // nobody touches buffers any more
  for (Level& level : levels_) {
    std::ranges::move(level.queue, std::back_inserter(level.running));
    level.queue.clear();
    for (const std::unique_ptr<Operation>& operation : level.running) {
      if (operation->done) continue;
      operation->execution.reset();  // before the owner of its memory continues
      operation->shared.reset();
      operation->work->finish(failure);
    }
    level.running.clear();
  }
  messages_.fail(failure);
  messages_in_flight_ = 0;
  in_flight_.store(round_.load(std::memory_order_acquire) != nullptr ? 1 : 0, std::memory_order_release);
  if (aborting) aborting->finish(nullptr);
}

// Files are slow and others wait for this thread, so a completion thread writes.
void Group::leave_record(const std::string& why) {
  log(LogLevel::warn, [&] { return "group " + name_ + " has ended: " + why; });
  if (trace_folder().empty()) return;
  auto left = std::make_shared<std::promise<void>>();
  record_left_ = left->get_future();
  engine_->completions().later([left, recorder = recorder_] {
    dump_to_trace_folder();
    left->set_value();
  });
}

std::string Group::disagreement(std::uint32_t peer, const Descriptor& ours, const Descriptor& theirs) const {
  const std::string name = fabric_->name_of_rank(peer);
  const std::string self = "rank " + std::to_string(fabric_->rank());
  return name + " and " + self + " disagree: " + self + " runs " + describe(ours) + ", " + name + " " +
         describe(theirs) + ": " + difference(ours, theirs);
}

// The frame shows that ranks disagree; the control plane knows what each of them runs, perhaps only after asking.
void Group::explain(const UnexpectedFrame& frame) {
  const std::vector<int> both{static_cast<int>(frame.peer), static_cast<int>(fabric_->rank())};
  const std::uint64_t sequence = std::min(frame.expected.sequence, frame.found.sequence);  // where they diverged
  const Descriptor& ours = levels_[frame.expected.priority].history[sequence % Level::kRemembered];
  ControlPlane* plane = plane_of(frame.peer);
  const std::optional<Descriptor> theirs = plane != nullptr ? counterpart(*plane, frame.peer, ours) : std::nullopt;
  if (theirs && theirs->fingerprint != ours.fingerprint && ours.sequence == sequence) {
    fail(Error::Kind::mismatch, disagreement(frame.peer, ours, *theirs), both);
    return;
  }
  if (!theirs && plane != nullptr) {
    if (!puzzled_since_) puzzled_since_ = Clock::now();
    plane->inquire();  // repeated, because an answer on its way may be older than the frame
    if (Clock::now() - *puzzled_since_ < kLongestPuzzle)
      return;  // the frame stays where it is; tend() will read the answer
  }
  const std::string peer = fabric_->name_of_rank(frame.peer);
  const std::string self = "rank " + std::to_string(fabric_->rank());
  if (theirs && frame.expected.total != frame.found.total) {
    const std::size_t element = size_of(ours.dtype);
    fail(Error::Kind::mismatch,
         peer + " and " + self + " disagree about element counts: in " + describe(ours) + " " + self + " expects " +
             std::to_string(frame.expected.total / element) + " elements of " + peer + ", which sends " +
             std::to_string(frame.found.total / element),
         both);
    return;
  }
  fail(Error::Kind::mismatch,
       peer + " and " + self + " disagree about " + (theirs ? "block sizes: in " : "the operation: in ") +
           describe(ours) + " " + self + " expects " + std::to_string(frame.expected.length) + " bytes of slice " +
           std::to_string(frame.expected.slice) + " of operation #" + std::to_string(frame.expected.sequence) + ", " +
           peer + " sent " + std::to_string(frame.found.length) + " bytes of slice " +
           std::to_string(frame.found.slice) + " of operation #" + std::to_string(frame.found.sequence),
       both);
}

// The peer's stage shows the mismatch. It announced its operations before it wrote there, so it is known here where
// they diverged.
void Group::explain(const SharedMismatch& mismatch) {
  const std::vector<int> both{static_cast<int>(mismatch.peer), static_cast<int>(fabric_->rank())};
  const ControlPlane& plane = *plane_of(mismatch.peer);
  const auto& history = levels_[index_of(mismatch.priority)].history;
  for (std::uint64_t back = std::min<std::uint64_t>(history.size(), mismatch.sequence); back > 0; --back) {
    const Descriptor& ours = history[(mismatch.sequence - back + 1) % history.size()];
    const std::optional<Descriptor> theirs = counterpart(plane, mismatch.peer, ours);
    if (!theirs || theirs->fingerprint == ours.fingerprint) continue;
    fail(Error::Kind::mismatch, disagreement(mismatch.peer, ours, *theirs), both);
    return;
  }
  fail(Error::Kind::mismatch,
       fabric_->name_of_rank(mismatch.peer) + " is not in " + describe(history[mismatch.sequence % history.size()]) +
           " as rank " + std::to_string(fabric_->rank()) + " is",
       both);
}

/// The system refused something to this rank; the others must learn which rank failed.
void Group::fail_as_refused(const Error& error) {
  const std::uint32_t self = fabric_->rank();
  fail(error.kind(), "rank " + std::to_string(self) + ": " + error.what(), {static_cast<int>(self)});
}

// Peers that blame this rank only saw it end. The reason is known here if the system has refused something to this rank
// (`here`, or while it connected).
bool Group::heard_of_the_end(const Error* here) {
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) plane->progress();
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) {
    const std::optional<Abort> heard = plane->aborted();
    if (!heard || failed_) continue;
    const Error* refused = here != nullptr ? here : fabric_->refused();
    const bool blamed = std::ranges::find(heard->ranks, static_cast<int>(fabric_->rank())) != heard->ranks.end();
    if (refused != nullptr && blamed && heard->kind == Error::Kind::dead) {
      fail_as_refused(*refused);
    } else {
      fail(heard->kind, heard->sentence, heard->ranks);
    }
  }
  return failed_;
}

// The data plane noticed first. The control plane knows the reason, or will soon: a goodbye, a death, or an abort that
// names another rank. If it still takes the peer to be alive after that, something has cut their connection.
void Group::explain(const Error& error) {
  const bool refused = error.kind() == Error::Kind::system && error.ranks().empty();
  if (heard_of_the_end(refused ? &error : nullptr)) return;
  if (refused) {
    fail_as_refused(error);
    return;
  }
  if (error.kind() != Error::Kind::dead || error.ranks().size() != 1) {
    const Operation* owed = error.kind() == Error::Kind::invalid ? first_owed(std::nullopt) : nullptr;
    fail(error.kind(), (owed != nullptr ? describe(owed->descriptor) + ": " : "") + error.what(), error.ranks());
    return;
  }
  const auto peer = static_cast<std::uint32_t>(error.ranks().front());
  const ControlPlane* plane = plane_of(peer);
  const PeerStatus::State state = plane != nullptr ? plane->status(peer).state : PeerStatus::State::dead;
  const bool left = state == PeerStatus::State::left;
  const bool alive = state == PeerStatus::State::alive;
  if (left && heard_of_the_end()) return;  // it told the reason before it left
  if (alive) {
    const Clock::time_point now = Clock::now();
    if (!cut_off_) cut_off_ = {error, now};
    if (now - cut_off_->second < kNewsOfEnd + fabric_->size() * kNewsOfEndPerRank) return;
  }
  const Operation* owed = first_owed(std::nullopt);
  const std::string what = owed != nullptr ? describe(owed->descriptor) : kMessage;
  const std::string self = "rank " + std::to_string(fabric_->rank());
  fail(left ? Error::Kind::aborted : Error::Kind::dead,
       fabric_->name_of_rank(peer) +
           (left    ? " left the group before " + what
            : alive ? " and " + self + " lost their connection during " + what + ", and both seem to live"
                    : " died during " + what) +
           " (" + error.what() + ")",
       error.ranks());
}

bool Group::waits_for(std::uint32_t peer) const {
  const auto names_it = [peer](const std::vector<std::uint32_t>& awaited) {
    return std::ranges::find(awaited, peer) != awaited.end();
  };
  return names_it(messages_.waiting_for()) || std::ranges::any_of(levels_, [&](const Level& level) {
           return std::ranges::any_of(level.running, [&](const std::unique_ptr<Operation>& operation) {
             return !operation->done && operation->execution && names_it(operation->execution->waiting_for());
           });
         });
}

/// A connection may have ended without a frame being lost that this rank knows of.
void Group::look_for_cut_off(Clock::time_point now) {
  if (cut_off_) return explain(cut_off_->first);
  if (moves_ != moves_seen_ || now - stalled_since_ < kFirstInquiry) return;
  for (const std::unique_ptr<Transport>& transport : fabric_->owned_transports()) {
    for (const Error& error : transport->ended()) {
      if (waits_for(static_cast<std::uint32_t>(error.ranks().front()))) return explain(error);
    }
  }
}

void Group::tend() {
  const auto& planes = fabric_->planes();
  for (const std::unique_ptr<ControlPlane>& plane : planes) plane->progress();
  const bool ended = std::ranges::any_of(planes, [](const auto& plane) { return plane->aborted().has_value(); });
  const bool all_there = this->all_there();
  // Data that has arrived counts, even from a peer that is gone or has since ended the group: check only once nothing
  // more moves.
  while ((ended || !all_there) && busy() && pass()) {
  }
  if (heard_of_the_end() || !busy()) return;
  const Clock::time_point now = Clock::now();
  if (!failed_) look_for_disagreement();
  if (!failed_ && !all_there) look_for_absent();
  if (!failed_) look_for_late(now);
  if (!failed_) look_for_cut_off(now);
}

/// Over all planes. Empty if one of them must be polled.
std::optional<std::uint64_t> Group::news() const {
  std::uint64_t all = 0;
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) {
    const std::optional<std::uint64_t> news = plane->news();
    if (!news) return std::nullopt;
    all += *news;
  }
  return all;
}

bool Group::all_there() {
  const std::optional<std::uint64_t> now = news();
  if (!now || now != seen_news_) {
    all_there_ = std::ranges::all_of(fabric_->planes(), [](const auto& plane) { return plane->ended() == 0; });
    seen_news_ = now;
  }
  return all_there_;
}

void Group::look_for_disagreement() {
  const std::optional<std::uint64_t> now = news();
  if (now && now == compared_news_ && admitted_ == compared_) return;
  compared_news_ = now;
  compared_ = admitted_;
  for (const Level& level : levels_) {
    for (const std::unique_ptr<Operation>& operation : level.running) {
      const Descriptor& ours = operation->descriptor;
      for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) {
        for (const std::uint32_t peer : plane->peers()) {
          const std::optional<Descriptor> theirs = counterpart(*plane, peer, ours);
          if (!theirs || theirs->fingerprint == ours.fingerprint) continue;
          fail(Error::Kind::mismatch, disagreement(peer, ours, *theirs),
               {static_cast<int>(peer), static_cast<int>(fabric_->rank())});
          return;
        }
      }
    }
  }
}

bool Group::alone() const {
  return std::ranges::all_of(fabric_->planes(),
                             [](const auto& plane) { return plane->ended() == plane->peers().size(); });
}

const Group::Operation* Group::first_owed(std::optional<PeerStatus> to) const {
  for (const Priority priority : kMostUrgentFirst) {
    for (const std::unique_ptr<Operation>& operation : levels_[index_of(priority)].running) {
      const std::uint64_t completed = to ? to->completed[index_of(priority)] : 0;
      if (!operation->done && operation->descriptor.sequence > completed) return operation.get();
    }
  }
  return nullptr;
}

// A peer that is gone is a failure only for operations that it had not completed, and for messages with it. After a
// peer has left, the others may still serve a receive from any source; after a death, nobody knows whose message was
// lost.
void Group::look_for_absent() {
  const std::vector<std::uint32_t> talking = messages_.waiting_for();
  const bool anyone = messages_.waits_for_anyone();
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) {
    for (const std::uint32_t peer : plane->peers()) {
      const PeerStatus status = plane->status(peer);
      if (status.state == PeerStatus::State::alive) continue;
      const Operation* owed = first_owed(status);
      const bool dead = status.state == PeerStatus::State::dead;
      const bool silent = std::ranges::find(talking, peer) != talking.end() || (anyone && (dead || alone()));
      if (owed == nullptr && !silent) continue;
      if (!dead && heard_of_the_end()) return;  // it told the reason before it left
      const std::string what = owed != nullptr ? describe(owed->descriptor) : kMessage;
      const std::string how = dead ? plane->end_of(peer) : std::string();
      fail(dead ? Error::Kind::dead : Error::Kind::aborted,
           fabric_->name_of_rank(peer) + (dead ? " died during " : " left the group before ") + what +
               (how.empty() ? how : ": it " + how),
           {static_cast<int>(peer)});
      return;
    }
  }
}

/// What keeps an operation from ending.
struct Group::Late {
  std::vector<int> ranks;   // those that have not started it; if all have, those still inside it
  std::vector<int> inside;  // peers that have started it and not completed it
  std::string sentence;     // begins with "; "
};

Group::Late Group::latecomers(const Operation& operation) const {
  const Priority priority = operation.descriptor.priority;
  Late late;
  for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) {
    for (const std::uint32_t peer : plane->peers()) {
      const PeerStatus status = plane->status(peer);
      if (status.known && status.started[index_of(priority)].sequence >= operation.descriptor.sequence) {
        if (status.completed[index_of(priority)] < operation.descriptor.sequence)
          late.inside.push_back(static_cast<int>(peer));
        continue;
      }
      late.ranks.push_back(static_cast<int>(peer));
      if (late.ranks.size() > kMostNamed) continue;
      late.sentence += "; " + fabric_->name_of_rank(peer) + " has not started it";
      late.sentence +=
          status.known ? " (its last: " + describe(last_started(status, priority)) + ")" : " (nothing heard from it)";
    }
  }
  if (late.ranks.size() > kMostNamed) {
    late.sentence += "; nor have " + std::to_string(late.ranks.size() - kMostNamed) + " other ranks";
  }
  if (!late.ranks.empty()) return late;
  late.ranks = late.inside;
  late.sentence = "; all ranks are inside it";
  if (operation.aggregated) {
    late.sentence += ", and wait for their aggregators";
    return late;
  }
  std::string waiting;
  for (const std::uint32_t peer :
       operation.shared ? operation.shared->waiting_for() : operation.execution->waiting_for()) {
    waiting += (waiting.empty() ? "" : ", ") + fabric_->name_of_rank(peer);
  }
  if (!waiting.empty()) late.sentence += ", this one waits for " + waiting;
  return late;
}

// Of a collective, the first rank that waits in it speaks for all; of a message, the rank that waits for it.
void Group::warn_of_wait(Clock::time_point now) {
  if (wait_warning_ == wait_warning_.zero() || now - stalled_since_ < warn_after_) return;
  const Clock::time_point since = now - warn_after_;
  std::string waits;
  const Operation* operation = first_owed(std::nullopt);
  if (operation != nullptr && operation->lifetime.created <= since) {
    const Late late = latecomers(*operation);
    const auto self = static_cast<int>(fabric_->rank());
    const bool first = std::ranges::none_of(late.inside, [self](int peer) { return peer < self; });
    if (first) waits = describe(operation->descriptor) + late.sentence;
  } else if (const std::optional<std::string> message = messages_.waiting_since(since)) {
    waits = *message;
  } else {
    return;
  }
  if (!waits.empty()) {
    log_always("group " + name_ + ": nothing has moved for " + seconds(warn_after_) + " in " + waits);
  }
  warn_after_ *= 2;
}

void Group::look_for_late(Clock::time_point now) {
  const bool stalled = moves_ == moves_seen_;
  if (!stalled) {
    moves_seen_ = moves_;
    stalled_since_ = now;
    warn_after_ = wait_warning_;
  }
  // Operations begun since the last inquiry are asked about soon; a peer that had not begun them then tells when it
  // does. Slices of a slow wire are further apart than that, and asking after each would take part of its bandwidth.
  // Inquiries reveal nothing about messages.
  bool asked = true;
  bool some = false;
  for (const Level& level : levels_) {
    some |= !level.running.empty();
    for (const std::unique_ptr<Operation>& operation : level.running) {
      asked = asked && operation->lifetime.created <= last_inquiry_;
    }
  }
  if (some && stalled && now - stalled_since_ >= kFirstInquiry && (!asked || now - last_inquiry_ >= kInquiryInterval)) {
    last_inquiry_ = now;
    for (const std::unique_ptr<ControlPlane>& plane : fabric_->planes()) plane->inquire();
  }
  for (const Level& level : levels_) {
    for (const std::unique_ptr<Operation>& operation : level.running) {
      if (operation->done || now < operation->lifetime.deadline) continue;
      const Late late = latecomers(*operation);
      fail(Error::Kind::timeout,
           describe(operation->descriptor) + " timed out after " + seconds(now - operation->lifetime.created) +
               " on rank " + std::to_string(fabric_->rank()) + late.sentence,
           late.ranks);
      return;
    }
  }
  if (const std::optional<std::string> sentence = messages_.expire(now)) {
    fail(Error::Kind::timeout, *sentence, {static_cast<int>(fabric_->rank())});
    return;
  }
  if (stalled) warn_of_wait(now);
}

}  // namespace syntony
