#include "core/legible.hpp"

namespace syntony {
namespace {

/// Length in bytes of the UTF-8 character at the front of `text`; 0 if it is invalid (RFC 3629).
std::size_t character_at(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong encodings, surrogates, and code points beyond the last character.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f)) return 0;
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) return 0;
  return length;
}

}  // namespace

std::string legible(std::string_view told) {
  std::string text;
  while (!told.empty()) {
    const std::size_t length = character_at(told);
    const auto first = static_cast<unsigned char>(told[0]);
    const bool shown = length > 0 && (first >= 0x20 || first == '\n') && first != 0x7f;
    if (shown) {
      text += told.substr(0, length);
    } else {
      text += '?';
    }
    told.remove_prefix(length > 0 ? length : 1);
  }
  return text;
}

}  // namespace syntony
