// SYNTONY_DEBUG: what the runtime writes to stderr beside its errors. Each level includes those before it.
//
//      WARN    failures of groups, and where their records were left
//      INFO    groups (who, how long it took), network interfaces, the Program for each size and why it was chosen
//      TRACE   every operation
//
// `1` means WARN; with any level the `syntony` command shows tracebacks. Disabled messages cost nothing: a function
// builds the text and is called only if needed.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace syntony {

enum class LogLevel : std::uint8_t { off, warn, info, trace };

/// Read once from SYNTONY_DEBUG. Throws Error(invalid), at every call, if it is not a level.
[[nodiscard]] LogLevel log_level();
/// Sets the rank that lines carry: that of the process's first group. Before that, lines carry the pid.
void set_log_rank(std::uint32_t rank);
/// "syntony [rank 3] INFO text" on stderr, in one write.
void write_log(LogLevel level, const std::string& text);
/// For what people must see at any level.
void log_always(const std::string& text);

template <typename Words>
void log(LogLevel level, Words&& words) {
  if (log_level() >= level) write_log(level, std::forward<Words>(words)());
}

}  // namespace syntony
