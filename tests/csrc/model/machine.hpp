// A machine of weak memory order that goes through everything it may do: every order of its threads' steps, and of
// every load every value that the C++ memory model lets it read. Single-threaded: the threads are fibers.
//
//      thread 0:  x = 1 (release) ──────────┐         of each place all stores are kept, in modification order:
//                                           ▼              x:  0 ── 1          each with the view that it publishes
//      thread 1:        load x (acquire) reads 0 or 1      y:  0 ── 7
//
// A view is what a thread cannot go behind (for each place, a store) and what has happened before (for each thread, a
// clock). A load may read any store that its view permits; acquire joins the view that the store published. Release
// and acquire fences keep a view for later stores and from earlier loads; sequentially consistent fences pass one view
// from each to the next. That is RC11 (Lahav et al., PLDI 2017) as an operational machine (Kang et al., POPL 2017,
// without promises): what it leaves out are loads that read stores which come later in every order, and sequentially
// consistent loads and stores, which the explored code does not use.
//
// Plain data has one value; two accesses of which neither happened before the other, and one writes, are a fault. So
// are a requirement that is not met, and threads that all wait for each other.
//
// Stores come as early as they can: a load may still read what was there before. Other runs that differ only in the
// order of independent steps are run once (sleep sets; Godefroid, LNCS 1032), and those in which a thread polls in
// vain, to read the same once more, are left.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <vector>

namespace syntony::model {

using Order = std::memory_order;
using Where = std::source_location;
enum class Access : std::uint8_t { load, store, exchange, fence, ring, answer };

/// A place in the source that asks for an order.
struct Site {
  std::string file;  // without its folders
  unsigned line = 0;
  unsigned column = 0;
  Access access = Access::load;
  Order order = Order::relaxed;
  [[nodiscard]] auto key() const { return std::tuple(file, line, column, access); }
};
[[nodiscard]] std::string describe(const Site& site);

/// A site, and the weaker order that it gets instead of its own.
struct Weakened {
  Site site;
  Order order = Order::relaxed;
};

/// Begins a run: sets up what the threads share, and returns what each of them does.
using Begin = std::function<std::vector<std::function<void()>>()>;

struct Outcome {
  std::uint64_t runs = 0;
  std::uint64_t left = 0;                        // runs that were left, as others cover them
  bool whole = false;                            // everything was gone through
  std::string fault;                             // the first one and the steps that lead to it; empty: none
  std::map<decltype(Site().key()), Site> sites;  // of csrc/core, met with an order that is not relaxed
};

/// Until everything is gone through, a fault is found, or so many runs are done.
[[nodiscard]] Outcome explore(const Begin& begin, std::uint64_t most_runs,
                              const std::optional<Weakened>& weakened = std::nullopt);

// ---- what the explored code does (shim/core/atomic.hpp)
// --------------------------------------------------------------

[[nodiscard]] std::uint64_t load(const void* place, std::uint64_t initial, Order order, const Where& where);
void store(const void* place, std::uint64_t initial, std::uint64_t value, Order order, const Where& where);
/// `expected` becomes what was there.
[[nodiscard]] bool exchange(const void* place, std::uint64_t initial, std::uint64_t& expected, std::uint64_t value,
                            Order order, const Where& where);
void pass_fence(Order order, const Where& where);
/// Bytes as a number that stands for them in this exploration, and back.
[[nodiscard]] std::uint64_t number_of(std::string bytes);
[[nodiscard]] const std::string& bytes_of(std::uint64_t number);
/// Plain data at `place` is read, or written; written data of `bytes` are zeros again when the next run begins.
void reads(const void* place);
void writes(void* place, std::size_t bytes);

// ---- what scenarios do
// -----------------------------------------------------------------------------------------------

/// A byte of plain data.
void put(std::byte* place, std::uint8_t value);
[[nodiscard]] std::uint8_t get(const std::byte* place);
void require(bool holds, const char* what);
/// This thread has polled in vain: it goes on when something that it read since it was last here has changed.
void idle();
/// This thread sleeps until it is rung for. Neither orders anything.
void answer();
void ring(std::uint32_t thread);

}  // namespace syntony::model
