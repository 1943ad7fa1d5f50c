// A machine of weak memory order that explores everything it may do: every order of its threads' steps, and for every
// load every value that the C++ memory model lets it read. Single-threaded: the threads are fibers.
//
//     thread 0:  x = 1 (release) ──────────┐         all stores to each place are kept, in modification order:
//                                          ▼              x:  0 ── 1          each with the view that it publishes
//     thread 1:        load x (acquire) reads 0 or 1      y:  0 ── 7
//
// A view is the oldest store that a thread may still read (per place) and what has happened before (a clock per
// thread). A load may read any store that its view permits; acquire joins the view that the store published. Release
// and acquire fences keep a view for later stores and from earlier loads; sequentially consistent fences pass one view
// from each to the next. That is RC11 (Lahav et al., PLDI 2017) as an operational machine (Kang et al., POPL 2017,
// without promises). It leaves out loads that read stores which come later in every order, and sequentially consistent
// loads and stores, which the explored code does not use.
//
// Plain data has one value; two unordered accesses, one of which writes, are a fault. So are a requirement that is not
// met, and a deadlock of all threads.
//
// Stores come as early as they can: a load may still read what was there before. Runs that differ only in the order of
// independent steps are run once (sleep sets; Godefroid, LNCS 1032), and runs in which a thread polls in vain, only to
// read the same again, are abandoned.
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

/// A place in the source that requests a memory order.
struct Site {
  std::string file;  // without its folders
  unsigned line = 0;
  unsigned column = 0;
  Access access = Access::load;
  Order order = Order::relaxed;
  [[nodiscard]] auto key() const { return std::tuple(file, line, column, access); }
};
[[nodiscard]] std::string describe(const Site& site);

/// A site, and the weaker order used there instead.
struct Weakened {
  Site site;
  Order order = Order::relaxed;
};

/// Begins a run: sets up what the threads share, and returns each thread's function.
using Begin = std::function<std::vector<std::function<void()>>()>;

struct Outcome {
  std::uint64_t runs = 0;
  std::uint64_t left = 0;                        // abandoned runs, which others cover
  bool whole = false;                            // the exploration was exhaustive
  std::string fault;                             // the first fault and the steps that lead to it; empty: none
  std::map<decltype(Site().key()), Site> sites;  // of csrc/core, met with an order that is not relaxed
};

/// Runs until everything is explored, a fault is found, or `most_runs` runs are done.
[[nodiscard]] Outcome explore(const Begin& begin, std::uint64_t most_runs,
                              const std::optional<Weakened>& weakened = std::nullopt);

// ---- what the explored code does (shim/core/atomic.hpp) -----------------------------------------------------------

[[nodiscard]] std::uint64_t load(const void* place, std::uint64_t initial, Order order, const Where& where);
void store(const void* place, std::uint64_t initial, std::uint64_t value, Order order, const Where& where);
/// `expected` receives the previous value.
[[nodiscard]] bool exchange(const void* place, std::uint64_t initial, std::uint64_t& expected, std::uint64_t value,
                            Order order, const Where& where);
void pass_fence(Order order, const Where& where);
/// Maps bytes to a number that represents them in this exploration, and back.
[[nodiscard]] std::uint64_t number_of(std::string bytes);
[[nodiscard]] const std::string& bytes_of(std::uint64_t number);
/// Plain data at `place` is read, or written; written data of `bytes` are reset to zeros before the next run.
void reads(const void* place);
void writes(void* place, std::size_t bytes);

// ---- what scenarios do --------------------------------------------------------------------------------------------

/// A byte of plain data.
void put(std::byte* place, std::uint8_t value);
[[nodiscard]] std::uint8_t get(const std::byte* place);
void require(bool holds, const char* what);
/// This thread has polled in vain: it continues when something that it has read since its last call has changed.
void idle();
/// This thread sleeps until it is rung. Neither orders anything.
void answer();
void ring(std::uint32_t thread);

}  // namespace syntony::model
