#include <array>
#include <memory>

#include "core/atomic.hpp"
#include "model/scenario.hpp"

namespace syntony::model {
namespace {

using Threads = std::vector<std::function<void()>>;
constexpr Order relaxed = Order::relaxed, acquire = Order::acquire, release = Order::release, seq_cst = Order::seq_cst;

struct Cells {
  Atomic<std::uint64_t> x, y;
  std::array<std::uint64_t, 4> read{};
  std::size_t ended = 0;
  std::byte plain{};

  /// Once all have ended, they must not have read this.
  void end(std::size_t threads, bool forbidden) {
    if (++ended == threads) require(!forbidden, "the outcome is seen");
  }
};

Begin over(Threads (*threads)(const std::shared_ptr<Cells>&)) {
  return [=] {
    const auto cells = std::make_shared<Cells>();
    return threads(cells);
  };
}

/// Store buffering: each stores into one cell and then loads the other; may both read the old value?
template <bool kFences>
Threads store_buffering(const std::shared_ptr<Cells>& c) {
  const auto end = [=] { c->end(2, c->read[0] == 0 && c->read[1] == 0); };
  return {[=] {
            c->x.store(1, release);
            if (kFences) fence(seq_cst);
            c->read[0] = c->y.load(acquire);
            end();
          },
          [=] {
            c->y.store(1, release);
            if (kFences) fence(seq_cst);
            c->read[1] = c->x.load(acquire);
            end();
          }};
}

/// Message passing: data, then a flag; may a thread see the flag and not the data?
template <Order kStore, Order kLoad>
Threads message_passing(const std::shared_ptr<Cells>& c) {
  return {[=] {
            c->x.store(1, relaxed);
            c->y.store(1, kStore);
          },
          [=] { require(c->y.load(kLoad) == 0 || c->x.load(relaxed) == 1, "the outcome is seen"); }};
}

template <bool kRelease, bool kAcquire>
Threads message_passing_by_fences(const std::shared_ptr<Cells>& c) {
  return {[=] {
            c->x.store(1, relaxed);
            if (kRelease) fence(release);
            c->y.store(1, relaxed);
          },
          [=] {
            const bool seen = c->y.load(relaxed) == 1;
            if (kAcquire) fence(acquire);
            require(!seen || c->x.load(relaxed) == 1, "the outcome is seen");
          }};
}

/// The same with plain data: are they ever used by both at once?
template <Order kStore, Order kLoad>
Threads publication(const std::shared_ptr<Cells>& c) {
  return {[=] {
            put(&c->plain, 1);
            c->y.store(1, kStore);
          },
          [=] {
            if (c->y.load(kLoad) == 1) require(get(&c->plain) == 1, "the outcome is seen");
          }};
}

/// Coherence: may the values of one cell go backwards?
Threads coherence(const std::shared_ptr<Cells>& c) {
  return {[=] {
            c->x.store(1, relaxed);
            c->x.store(2, relaxed);
          },
          [=] {
            const std::uint64_t first = c->x.load(relaxed);
            require(c->x.load(relaxed) >= first, "the outcome is seen");
          }};
}

/// One thread passes on what it has seen: may a third see the second's word and not the first's?
template <Order kOrder>
Threads write_to_read_causality(const std::shared_ptr<Cells>& c) {
  return {[=] { c->x.store(1, relaxed); },
          [=] {
            if (c->x.load(relaxed) == 1) c->y.store(1, kOrder);
          },
          [=] { require(c->y.load(acquire) == 0 || c->x.load(relaxed) == 1, "the outcome is seen"); }};
}

/// Two writers and two readers: may the readers see the writes in different orders?
template <bool kFences>
Threads independent_reads(const std::shared_ptr<Cells>& c) {
  const auto end = [=] { c->end(2, c->read == std::array<std::uint64_t, 4>{1, 0, 1, 0}); };
  return {[=] { c->x.store(1, release); }, [=] { c->y.store(1, release); },
          [=] {
            c->read[0] = c->x.load(acquire);
            if (kFences) fence(seq_cst);
            c->read[1] = c->y.load(acquire);
            end();
          },
          [=] {
            c->read[2] = c->y.load(acquire);
            if (kFences) fence(seq_cst);
            c->read[3] = c->x.load(acquire);
            end();
          }};
}

/// Each stores into both cells, in opposite orders: may each cell keep its first writer's value?
Threads two_writes_each(const std::shared_ptr<Cells>& c) {
  const auto end = [=] { c->end(2, c->read[0] == 1 && c->read[1] == 1); };
  return {[=] {
            c->x.store(1, relaxed);
            c->y.store(2, relaxed);
            c->read[0] = c->y.load(relaxed);
            end();
          },
          [=] {
            c->y.store(1, relaxed);
            c->x.store(2, relaxed);
            c->read[1] = c->x.load(relaxed);
            end();
          }};
}

/// Can two threads both take what is there once?
Threads one_wins(const std::shared_ptr<Cells>& c) {
  const auto take = [=] {
    std::uint64_t nobody = 0;
    if (c->x.compare_exchange_strong(nobody, 1, relaxed)) require(++c->ended < 2, "the outcome is seen");
  };
  return {take, take};
}

/// An acquire that reads an exchange synchronizes with the release that it followed.
Threads release_sequence(const std::shared_ptr<Cells>& c) {
  return {[=] {
            put(&c->plain, 1);
            c->x.store(1, release);
          },
          [=] {
            std::uint64_t one = 1;
            c->x.compare_exchange_strong(one, 2, relaxed);
          },
          [=] {
            if (c->x.load(acquire) == 2) require(get(&c->plain) == 1, "the outcome is seen");
          }};
}

/// A bell, and whether it is looked for: does a thread sleep forever?
template <bool kFences>
Threads sleeper(const std::shared_ptr<Cells>& c) {
  return {[=] {
            c->x.store(1, release);
            if (kFences) fence(seq_cst);
            if (c->y.load(relaxed) == 1) ring(1);
          },
          [=] {
            c->y.store(1, relaxed);
            if (kFences) fence(seq_cst);
            if (c->x.load(acquire) == 0) answer();
          }};
}

const std::array kAll{
    Litmus{"store buffering", over(store_buffering<false>), true},
    Litmus{"store buffering, fences", over(store_buffering<true>)},
    Litmus{"message passing, relaxed", over(message_passing<relaxed, relaxed>), true},
    Litmus{"message passing, release only", over(message_passing<release, relaxed>), true},
    Litmus{"message passing, acquire only", over(message_passing<relaxed, acquire>), true},
    Litmus{"message passing", over(message_passing<release, acquire>)},
    Litmus{"message passing, a release fence only", over(message_passing_by_fences<true, false>), true},
    Litmus{"message passing, an acquire fence only", over(message_passing_by_fences<false, true>), true},
    Litmus{"message passing, fences", over(message_passing_by_fences<true, true>)},
    Litmus{"publication, relaxed", over(publication<relaxed, relaxed>), true},
    Litmus{"publication, release only", over(publication<release, relaxed>), true},
    Litmus{"publication, acquire only", over(publication<relaxed, acquire>), true},
    Litmus{"publication", over(publication<release, acquire>)},
    Litmus{"coherence", over(coherence)},
    Litmus{"write to read causality, relaxed", over(write_to_read_causality<relaxed>), true},
    Litmus{"write to read causality", over(write_to_read_causality<release>)},
    Litmus{"independent reads", over(independent_reads<false>), true},
    Litmus{"independent reads, fences", over(independent_reads<true>)},
    Litmus{"two writes each", over(two_writes_each), true},
    Litmus{"one wins", over(one_wins)},
    Litmus{"release sequence", over(release_sequence)},
    Litmus{"sleeper", over(sleeper<false>), true},
    Litmus{"sleeper, fences", over(sleeper<true>)},
};

}  // namespace

std::span<const Litmus> litmus() { return kAll; }

}  // namespace syntony::model
