#include "core/process/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace syntony {
namespace {

constexpr std::array<std::string_view, 4> kNames{"0", "WARN", "INFO", "TRACE"};
std::atomic<std::int64_t> log_rank{-1};

LogLevel read_level() {
  const char* variable = std::getenv("SYNTONY_DEBUG");
  std::string text = variable == nullptr || *variable == '\0' ? "0" : variable;
  std::ranges::transform(text, text.begin(), [](unsigned char letter) { return std::toupper(letter); });
  if (text == "1") return LogLevel::warn;
  const auto found = std::ranges::find(kNames, text);
  if (found == kNames.end()) {
    throw Error(Error::Kind::invalid,
                "SYNTONY_DEBUG=" + std::string(variable) + " is not a level: there are WARN, INFO, TRACE");
  }
  return static_cast<LogLevel>(found - kNames.begin());
}

}  // namespace

LogLevel log_level() {
  static const LogLevel level = read_level();
  return level;
}

void set_log_rank(std::uint32_t rank) {
  std::int64_t unset = -1;
  log_rank.compare_exchange_strong(unset, rank);
}

void write_log(LogLevel level, const std::string& text) {
  const std::int64_t rank = log_rank.load();
  const std::string who = rank < 0 ? "process " + std::to_string(::getpid()) : "rank " + std::to_string(rank);
  const std::string line =
      "syntony [" + who + "] " + std::string(kNames[static_cast<std::size_t>(level)]) + " " + text + "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

void log_always(const std::string& text) { write_log(LogLevel::warn, text); }

}  // namespace syntony
