// The table of builders: the algorithms that can be requested by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/program/algorithms/direct.hpp"
#include "core/program/algorithms/hierarchical.hpp"
#include "core/program/program.hpp"

namespace syntony {

/// The parameters of `build`.
struct Asked {
  Collective collective;
  std::uint32_t ranks, root;
  const Boxes& boxes;
  const Shares& shares;
};

struct Algorithm {
  std::string_view name;
  std::string_view description;  // one line
  std::span<const Collective> collectives;
  Program (*build)(const Asked& asked);
};

[[nodiscard]] std::span<const Algorithm> algorithms();

/// The Program of algorithm `name`. `root` matters only to rooted collectives (0 otherwise), `boxes` only to
/// `hierarchical` (empty: `boxes_for(ranks)`), `shares` only to `two_shot` (empty: equal). Throws std::invalid_argument
/// if the table has no such builder or ranks or root do not fit.
[[nodiscard]] Program build(std::string_view name, Collective collective, std::uint32_t ranks, std::uint32_t root = 0,
                            const Boxes& boxes = {}, const Shares& shares = {});

}  // namespace syntony
