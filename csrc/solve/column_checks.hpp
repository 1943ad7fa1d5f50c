// Checks of columns passed in from outside. All throw std::invalid_argument naming the column and the row.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace syntony {

[[noreturn]] inline void refuse(const std::string& column, std::size_t row, const std::string& what) {
  throw std::invalid_argument(column + "[" + std::to_string(row) + "] " + what);
}

inline void check_that(bool holds, const char* otherwise) {
  if (!holds) throw std::invalid_argument(otherwise);
}

template <class Column>
void check_size(const char* name, const Column& column, std::size_t size) {
  if (column.size() == size) return;
  throw std::invalid_argument(std::string(name) + " has " + std::to_string(column.size()) + " entries; it must have " +
                              std::to_string(size));
}

inline void check_amounts(const char* name, std::span<const double> column, bool positive) {
  for (std::size_t row = 0; row < column.size(); ++row) {
    const bool fine = std::isfinite(column[row]) && (positive ? column[row] > 0 : column[row] >= 0);
    if (!fine) {
      refuse(
          name, row,
          "is " + std::to_string(column[row]) + "; it must be finite and " + (positive ? "positive" : "not negative"));
    }
  }
}

inline void check_numbers(const char* name, std::span<const std::int32_t> column, std::size_t limit) {
  for (std::size_t row = 0; row < column.size(); ++row) {
    if (column[row] < 0 || static_cast<std::size_t>(column[row]) >= limit) {
      refuse(name, row, "is " + std::to_string(column[row]) + "; it must be in 0.." + std::to_string(limit) + "-1");
    }
  }
}

/// `offset` cuts a column of `size` entries into pieces of at least `least` entries each.
inline void check_offset(const char* name, std::span<const std::int64_t> offset, std::size_t size, std::int64_t least) {
  if (offset.empty() || offset.front() != 0) refuse(name, 0, "must be there and 0");
  for (std::size_t row = 1; row < offset.size(); ++row) {
    if (offset[row] < offset[row - 1] + least) {
      refuse(name, row, "must be " + std::to_string(least) + " or more above the entry before it");
    }
  }
  if (static_cast<std::size_t>(offset.back()) != size) {
    refuse(name, offset.size() - 1, "must be the length of what it cuts, " + std::to_string(size));
  }
}

}  // namespace syntony
