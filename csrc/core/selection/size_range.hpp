// SizeRange: one line of a size table. It applies up to and including `last` bytes.
#pragma once

#include <cstddef>
#include <string>

namespace syntony {

struct SizeRange {
  std::size_t last;
  std::string algorithm;  // `auto`: our own choice
  std::string why;        // for people
};

}  // namespace syntony
