// SizeRange: one line of a table of sizes. Up to `last` bytes (included) it is this algorithm's.
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
