// SYNTONY_DEBUG: what the runtime tells on stderr beside its errors. Each level includes those before it.
//
//      WARN    failures of groups, and where their records were left
//      INFO    groups (who, how long it took), network interfaces, the Program for each size and why it was chosen
//      TRACE   every operation
//
// `1` means WARN; with any level the `syntony` command shows tracebacks. Words cost nothing while nobody wants them:
// they are made by a function that is called only then.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace syntony {

enum class LogLevel : std::uint8_t { off, warn, info, trace };

/// Read once from SYNTONY_DEBUG. Throws Error(invalid), at every call, when it holds no level.
[[nodiscard]] LogLevel log_level();
/// The rank that lines carry: that of the process's first group. Before, they carry the process's number.
void set_log_rank(std::uint32_t rank);
/// "syntony [rank 3] INFO text" on stderr, in one write.
void write_log(LogLevel level, const std::string& text);
/// For what people must see whatever the level.
void log_always(const std::string& text);

template <typename Words>
void log(LogLevel level, Words&& words) {
  if (log_level() >= level) write_log(level, std::forward<Words>(words)());
}

}  // namespace syntony
