// Torch's hooks on a group: functions called after each operation's success, or after the group's failure.
//
//     torch 2.11 - 2.13   none (one hook on completions, for NCCL's users: Completions in syntony_work.hpp)
//     torch 2.14          abort hooks
//     torch 2.15          completion hooks, too; torch's flight recorder and its health check register both kinds
//
// Hooks run on the first thread that notices: a caller, or a completion thread. Never on the thread that makes
// progress, because an abort hook writes files and waits for the interpreter.
#pragma once

#include <torch/version.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "core/error.hpp"

// Completion hooks have no feature macro of their own.
#if defined(C10D_BACKEND_HAS_HOOKS) && (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15)
#define SYNTONY_TORCH_HAS_COMPLETION_HOOKS 1
#endif

namespace syntony::glue {

/// Functions by the number that torch gives them. Thread-safe. They are called without a lock, so one that is being
/// removed may run once more.
template <typename... Arguments>
class HookTable {
 public:
  using Hook = std::function<void(Arguments...)>;

  void add(std::int64_t id, Hook hook) {
    change([&](Table& table) { table[id] = std::move(hook); });
  }
  void remove(std::int64_t id) {
    change([&](Table& table) { table.erase(id); });
  }
  [[nodiscard]] bool empty() const { return empty_.load(std::memory_order_acquire); }
  void operator()(const Arguments&... arguments) const {
    const std::shared_ptr<const Table> table = now();
    for (const auto& [id, hook] : *table) {
      try {
        hook(arguments...);
      } catch (const std::exception& error) {
        TORCH_WARN("syntony: a hook raised ", error.what());
      }
    }
  }

 private:
  using Table = std::map<std::int64_t, Hook>;

  [[nodiscard]] std::shared_ptr<const Table> now() const {
    const std::scoped_lock lock(mutex_);
    return table_;
  }
  template <typename Change>
  void change(Change&& change) {
    std::shared_ptr<const Table> old;  // destroyed without the lock: its contents may need the interpreter's
    const std::scoped_lock lock(mutex_);
    auto table = std::make_shared<Table>(*table_);
    change(*table);
    empty_.store(table->empty(), std::memory_order_release);
    old = std::exchange(table_, std::move(table));
  }

  std::atomic<bool> empty_{true};  // checked in every call
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_ = std::make_shared<Table>();
};

/// The hooks of one group, shared by its Works.
struct Hooks {
  std::string title = "syntony";  // torch.profiler shows "syntony:all_reduce"
  HookTable<> failure;
  HookTable<std::uint64_t, std::optional<float>> success;  // key of the Work, milliseconds if known

  /// Calls the runtime. If it finds that the group has failed, the hooks run before the caller learns of it, because
  /// the caller may end the process. Several callers may find the same failure; torch's hooks expect that.
  template <typename Call>
  decltype(auto) watch(Call&& call) const {
    try {
      return call();
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::invalid) failure();
      throw;
    }
  }
};

}  // namespace syntony::glue
