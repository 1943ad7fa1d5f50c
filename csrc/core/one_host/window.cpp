#include "core/one_host/window.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <string>
#include <utility>

#include "core/call.hpp"
#include "core/error.hpp"
#include "core/kernels/vector_copy.hpp"
#include "core/process/unique_fd.hpp"
#include "core/program/block.hpp"

namespace syntony {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr int kYields = 200;                                   // before a waiter sleeps
constexpr timespec kLook{.tv_sec = 0, .tv_nsec = 10'000'000};  // how often a sleeper checks its peer

// std::atomic's own wait() works only between threads of one process.
void sleep_while(const Atomic<std::uint32_t>& value, std::uint32_t seen) {
  ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, &kLook, nullptr, 0);
}
void wake_all(Atomic<std::uint32_t>& value) { ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

/// Maps the whole memfd behind a descriptor of a process. Null if it cannot be mapped.
std::shared_ptr<std::byte> map_whole(pid_t process, int descriptor) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat facts{};
  if (!file || ::fstat(file.get(), &facts) != 0) return nullptr;
  const auto bytes = static_cast<std::size_t>(facts.st_size);
  void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return nullptr;
  return {static_cast<std::byte*>(data), [bytes](std::byte* mapped) { ::munmap(mapped, bytes); }};
}

std::string listed(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (const int rank : ranks) text += (rank == ranks.front() ? "" : ", ") + std::to_string(rank);
  return text;
}

}  // namespace

struct Window::Place {
  enum class State : std::uint32_t { fine, not_shareable, not_mapped };
  State state = State::fine;
  std::int32_t process = 0;
  std::int32_t memory = -1, counts = -1;  // descriptors
  std::uint64_t offset = 0, bytes = 0;
};

std::vector<Window::Place> Window::exchange(const Place& mine) const {
  const std::uint32_t size = group_->size();
  std::vector<Place> all(size);
  const InputPart input{reinterpret_cast<const std::byte*>(&mine), sizeof(Place)};
  const std::vector<std::size_t> counts(size, sizeof(Place));
  const auto outputs = consecutive(reinterpret_cast<std::byte*>(all.data()), counts, 1);
  group_->run({.collective = Collective::all_gather,
               .dtype = DType::uint8,
               .blocks = blocks_of(Collective::all_gather, {group_->rank(), size, 0}, std::span(&input, 1), outputs)});
  return all;
}

Window::Window(std::shared_ptr<Communicator> group, std::span<std::byte> memory)
    : group_(std::move(group)), peers_(group_->size()), asked_(group_->size()) {
  const std::uint32_t size = group_->size(), self = group_->rank();
  if (group_->boxes().size() != 1) {
    throw Error(Error::Kind::invalid,
                "a window is memory that all ranks map: they must be on one host, and these are on " +
                    std::to_string(group_->boxes().size()));
  }
  counts_ = ShareableMemory::allocate(size * sizeof(Count));
  Place mine{.process = ::getpid(),
             .counts = ShareableMemory::find(counts_->data(), size * sizeof(Count))->descriptor,
             .bytes = memory.size()};
  if (const auto place = ShareableMemory::find(memory.data(), memory.size()); !memory.empty()) {
    mine.state = place ? Place::State::fine : Place::State::not_shareable;
    if (place) mine.memory = place->descriptor, mine.offset = place->offset;
  }
  const auto refuse_where = [](const std::vector<Place>& places, Place::State state, Error::Kind kind,
                               const std::string& why) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < places.size(); ++rank) {
      if (places[rank].state == state) ranks.push_back(static_cast<int>(rank));
    }
    if (!ranks.empty()) throw Error(kind, "no window: " + listed(ranks) + " " + why, ranks);
  };
  const std::vector<Place> places = exchange(mine);
  refuse_where(places, Place::State::not_shareable, Error::Kind::invalid,
               "brought memory that other processes cannot map; take it from syntony.empty(), or from the "
               "backend's allocate_tensor()");
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    const Place& place = places[rank];
    Peer& peer = peers_[rank];
    peer.process = place.process;
    const auto counts = map_whole(place.process, place.counts);
    const auto bytes = place.bytes == 0 ? nullptr : map_whole(place.process, place.memory);
    if (!counts || (place.bytes != 0 && !bytes)) {
      mine.state = Place::State::not_mapped;
      break;
    }
    peer.mapped_counts = counts;
    peer.counts = {reinterpret_cast<Count*>(counts.get()), size};
    peer.mapped = bytes;
    if (bytes) peer.memory = {bytes.get() + place.offset, place.bytes};
  }
  if (!memory.empty()) peers_[self].memory = memory;
  refuse_where(exchange(mine), Place::State::not_mapped, Error::Kind::system,
               "cannot map the others' memory: /proc/PID/fd of the others must be open to it");
}

std::string Window::sentence(std::uint32_t rank, const std::string& what) const {
  return "[rank " + std::to_string(group_->rank()) + "] signal of rank " + std::to_string(rank) +
         " in a window: " + what;
}

void Window::put(std::uint32_t rank, std::size_t offset, std::span<const std::byte> bytes) const {
  const std::span<std::byte> memory = of(rank);
  if (offset > memory.size() || bytes.size() > memory.size() - offset) {
    throw Error(Error::Kind::invalid, "a put of " + std::to_string(bytes.size()) + " bytes at byte " +
                                          std::to_string(offset) + " ends beyond the " + std::to_string(memory.size()) +
                                          " bytes that rank " + std::to_string(rank) + " has in this window");
  }
  vector_copy(memory.data() + offset, bytes.data(), bytes.size());
}

// Waiter and signaller may each miss the other's first step, but not both: all four are sequentially consistent.
//
//      await:  sleepers += 1; sleep if signals is still what it was        signal:  signals += 1; wake if sleepers
void Window::signal(std::uint32_t rank) const {
  Count& count = peers_[rank].counts[group_->rank()];
  count.signals.fetch_add(1, std::memory_order_seq_cst);  // releases what was put
  if (count.sleepers.load(std::memory_order_seq_cst) != 0) wake_all(count.signals);
}

std::uint32_t Window::next(std::uint32_t rank) { return asked_[rank].fetch_add(1, std::memory_order_relaxed) + 1; }

bool Window::arrived(std::uint32_t rank, std::uint32_t number) const {
  const std::uint32_t signals = peers_[group_->rank()].counts[rank].signals.load(std::memory_order_acquire);
  return static_cast<std::int32_t>(signals - number) >= 0;  // the counters may wrap around
}

void Window::await(std::uint32_t rank, std::uint32_t number, milliseconds timeout) const {
  for (int i = 0; i < kYields; ++i) {
    if (arrived(rank, number)) return;
    ::sched_yield();
  }
  if (timeout == milliseconds(0)) timeout = group_->timeout();
  const Clock::time_point deadline = after(timeout);
  Count& count = peers_[group_->rank()].counts[rank];
  ProcessWatch watch(peers_[rank].process);
  count.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const auto done = [&] { count.sleepers.fetch_sub(1, std::memory_order_relaxed); };
  for (;;) {
    const std::uint32_t seen = count.signals.load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(seen - number) >= 0) return done();
    const bool ended = watch.ended(), late = Clock::now() >= deadline;
    const std::exception_ptr failure = group_->error();
    if (!ended && !late && !failure) {
      sleep_while(count.signals, seen);
      continue;
    }
    done();
    if (arrived(rank, number)) return;  // its last signal counts even if it has died since
    if (failure) std::rethrow_exception(failure);
    if (ended) throw Error(Error::Kind::dead, sentence(rank, "its process has ended"), {static_cast<int>(rank)});
    throw Error(Error::Kind::timeout, sentence(rank, "timed out after " + std::to_string(timeout.count()) + " ms"),
                {static_cast<int>(rank)});
  }
}

}  // namespace syntony
