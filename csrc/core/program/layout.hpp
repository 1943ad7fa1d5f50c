// Who holds which block when a collective starts and when it ends: the table beside `enum class Collective`, as code.
#pragma once

#include <cstdint>

#include "core/program/program.hpp"

namespace syntony {

/// True when `rank`'s input holds `block`.
[[nodiscard]] constexpr bool starts_with(Collective collective, std::uint32_t ranks, std::uint32_t root,
                                         std::uint32_t rank, std::uint32_t block) {
  switch (collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter:
    case Collective::reduce:
      return true;
    case Collective::all_gather:
    case Collective::gather:
      return block == rank;
    case Collective::all_to_all:
      return block / ranks == rank;
    case Collective::broadcast:
    case Collective::scatter:
      return rank == root;
  }
  return false;
}

/// True when `rank`'s output holds `block`.
[[nodiscard]] constexpr bool ends_with(Collective collective, std::uint32_t ranks, std::uint32_t root,
                                       std::uint32_t rank, std::uint32_t block) {
  switch (collective) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::broadcast:
      return true;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return block == rank;
    case Collective::all_to_all:
      return block % ranks == rank;
    case Collective::reduce:
    case Collective::gather:
      return rank == root;
  }
  return false;
}

}  // namespace syntony
