// Writes Python's pickle format, protocol 2: numbers, text, None, lists, tuples and dictionaries, and no code.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace syntony {

class Pickle {
 public:
  Pickle& none() { return put("N"); }
  Pickle& boolean(bool value) { return put(value ? "\x88" : "\x89"); }
  Pickle& number(std::int64_t value) {
    put("\x8a\x08");  // LONG1, eight bytes, least significant first
    for (int shift = 0; shift < 64; shift += 8) text_ += static_cast<char>(value >> shift);
    return *this;
  }
  Pickle& text(std::string_view value) {
    const auto [known, fresh] = memo_.try_emplace(std::string(value), static_cast<std::uint32_t>(memo_.size()));
    if (!fresh) return put("j").word(known->second);  // LONG_BINGET
    put("X").word(static_cast<std::uint32_t>(value.size())).put(value);
    return put("r").word(known->second);  // LONG_BINPUT
  }
  /// A dictionary's key; its value must follow.
  Pickle& key(std::string_view name) { return text(name); }

  Pickle& begin_list() { return put("]("); }
  Pickle& end_list() { return put("e"); }
  Pickle& begin_dictionary() { return put("}("); }
  Pickle& end_dictionary() { return put("u"); }
  Pickle& begin_tuple() { return put("("); }
  Pickle& end_tuple() { return put("t"); }

  /// The whole pickle, once its single value is complete.
  [[nodiscard]] std::string finish() const { return "\x80\x02" + text_ + "."; }

 private:
  Pickle& put(std::string_view bytes) {
    text_ += bytes;
    return *this;
  }
  Pickle& word(std::uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) text_ += static_cast<char>(value >> shift);
    return *this;
  }

  std::string text_;
  std::map<std::string, std::uint32_t> memo_;
};

}  // namespace syntony
