#include "core/shm/shm_board.hpp"

#include <unistd.h>

#include <algorithm>

#include "core/atomic.hpp"
#include "core/legible.hpp"

namespace syntony {

ShmBoard::ShmBoard(ShmSegment& segment, std::uint32_t rank, std::span<const pid_t> processes)
    : segment_(segment), rank_(rank) {
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const std::uint32_t other = segment.ranks()[i];
    if (other == rank) continue;
    Peer peer{other, std::nullopt, false};
    if (processes[i] != ::getpid()) {
      peer.process.emplace(processes[i]);
      if (peer.process->descriptor() >= 0) descriptors_.push_back(peer.process->descriptor());
    }
    peers_.push_back(other);
    processes_.push_back(std::move(peer));
  }
}

const ShmBoard::Peer& ShmBoard::peer(std::uint32_t rank) const {
  return *std::ranges::find(processes_, rank, &Peer::rank);
}

void ShmBoard::announce(const Descriptor& started) {
  BoardProgress& progress = segment_.board(rank_).progress[index_of(started.priority)];
  // A reader that sees a part of this entry must also see that the previous one was announced; otherwise it could not
  // tell that its copy is being overwritten. Pairs with the fence in announced().
  fence(std::memory_order_release);
  progress.remembered[started.sequence % kRememberedOperations].assign(started);
  progress.started.store(started.sequence, std::memory_order_release);
}

void ShmBoard::complete(Priority priority, std::uint64_t sequence) {
  segment_.board(rank_).progress[index_of(priority)].completed.store(sequence, std::memory_order_release);
}

PeerStatus ShmBoard::status(std::uint32_t rank) const {
  const BoardLine& line = segment_.board(rank);
  PeerStatus status;
  status.known = true;
  for (std::size_t i = 0; i < kPriorities; ++i) {
    const BoardProgress& progress = line.progress[i];
    status.completed[i] = progress.completed.load(std::memory_order_acquire);
    std::optional<Descriptor> started = Descriptor{};
    do {  // repeat if it was overwritten meanwhile: the peer has begun fifteen more
      if (const std::uint64_t sequence = progress.started.load(std::memory_order_relaxed)) {
        started = announced(rank, static_cast<Priority>(i), sequence);
      }
    } while (!started);
    status.started[i] = *started;
  }
  status.state = state(rank);
  return status;
}

PeerStatus::State ShmBoard::state(std::uint32_t rank) const {
  if (segment_.board(rank).left.load(std::memory_order_acquire) != 0) return PeerStatus::State::left;
  return peer(rank).dead ? PeerStatus::State::dead : PeerStatus::State::alive;
}

std::size_t ShmBoard::ended() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(peers(), [this](std::uint32_t rank) { return state(rank) != PeerStatus::State::alive; }));
}

std::optional<Descriptor> ShmBoard::announced(std::uint32_t rank, Priority priority, std::uint64_t sequence) const {
  const BoardProgress& progress = segment_.board(rank).progress[index_of(priority)];
  const auto overwritten = [&](std::uint64_t started) { return started >= sequence + kRememberedOperations; };
  const std::uint64_t before = progress.started.load(std::memory_order_acquire);
  if (before < sequence || overwritten(before)) return std::nullopt;
  const auto descriptor = progress.remembered[sequence % kRememberedOperations].as<Descriptor>();
  fence(std::memory_order_acquire);
  // The writer may be one entry ahead of `started` during the copy.
  if (overwritten(progress.started.load(std::memory_order_relaxed) + 1) || descriptor.sequence != sequence)
    return std::nullopt;
  return descriptor;
}

std::optional<Descriptor> ShmBoard::announced(std::uint32_t rank, std::uint64_t ordinal) const {
  for (const Priority priority : kMostUrgentFirst) {
    const std::uint64_t last =
        segment_.board(rank).progress[index_of(priority)].started.load(std::memory_order_relaxed);
    for (std::uint64_t sequence = last; sequence > 0 && sequence + kRememberedOperations > last; --sequence) {
      std::optional<Descriptor> descriptor = announced(rank, priority, sequence);
      if (descriptor && descriptor->ordinal == ordinal) return descriptor;
    }
  }
  return std::nullopt;
}

void ShmBoard::abort(const Abort& reason) {
  AbortRecord& record = segment_.abort_record();
  std::uint32_t nobody = 0;
  if (record.state.compare_exchange_strong(nobody, 1, std::memory_order_relaxed)) {  // 1 publishes nothing
    AbortRecord::Reason told{};
    told.kind = static_cast<std::uint32_t>(reason.kind);
    told.rank_count = static_cast<std::uint32_t>(std::min(reason.ranks.size(), told.ranks.size()));
    std::copy_n(reason.ranks.begin(), told.rank_count, told.ranks.begin());
    reason.sentence.copy(told.sentence.data(), told.sentence.size() - 1);
    record.reason = told;
    record.state.store(2, std::memory_order_release);
  }
  for (const std::uint32_t other : peers_) segment_.ring(other);
}

std::optional<Abort> ShmBoard::aborted() const {
  const AbortRecord& record = segment_.abort_record();
  if (record.state.load(std::memory_order_acquire) != 2) return std::nullopt;
  const AbortRecord::Reason& told = record.reason;
  return Abort{static_cast<Error::Kind>(told.kind),
               std::vector<int>(told.ranks.begin(), told.ranks.begin() + told.rank_count),
               legible(told.sentence.data())};
}

void ShmBoard::post(std::uint64_t number, std::string_view text) {
  check_post(text);
  Post& post = segment_.post(rank_, post_slot(number));
  post.number.store(0, std::memory_order_relaxed);
  fence(std::memory_order_release);  // nobody sees the new text under the old number
  post.length.store(static_cast<std::uint32_t>(text.size()), std::memory_order_relaxed);
  post.text.write(std::as_bytes(std::span(text)));
  post.number.store(number, std::memory_order_release);
  for (const std::uint32_t other : peers_) segment_.ring(other);
}

std::optional<std::string> ShmBoard::posted(std::uint32_t rank, std::uint64_t number) const {
  const Post& post = segment_.post(rank, post_slot(number));
  if (post.number.load(std::memory_order_acquire) != number) return std::nullopt;
  std::string text(std::min<std::size_t>(post.length.load(std::memory_order_relaxed), kLongestPost), '\0');
  post.text.read(std::as_writable_bytes(std::span(text)));
  fence(std::memory_order_acquire);
  if (post.number.load(std::memory_order_relaxed) != number) return std::nullopt;  // overwritten during the copy
  return text;
}

void ShmBoard::leave() {
  segment_.board(rank_).left.store(1, std::memory_order_release);
  for (const std::uint32_t other : peers_) segment_.ring(other);
}

void ShmBoard::progress() {
  for (Peer& peer : processes_) {
    peer.dead = peer.process && peer.process->ended();
  }
}

}  // namespace syntony
