// Text that came from others, fit to be shown to people.
#pragma once

#include <string>
#include <string_view>

namespace syntony {

/// Control characters, but for the end of a line, and what is no UTF-8 (a sentence may have been cut in the middle of a
/// character) become '?'.
[[nodiscard]] std::string legible(std::string_view told);

}  // namespace syntony
