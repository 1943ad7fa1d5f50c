// Makes text received from others safe to display.
#pragma once

#include <string>
#include <string_view>

namespace syntony {

/// Replaces control characters other than newline, and invalid UTF-8 (a message may have been cut within a character),
/// by '?'.
[[nodiscard]] std::string legible(std::string_view told);

}  // namespace syntony
