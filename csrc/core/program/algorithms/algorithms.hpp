// The table of builders: what can be asked for by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/program/algorithms/direct.hpp"
#include "core/program/algorithms/hierarchical.hpp"
#include "core/program/program.hpp"

namespace syntony {

/// What `build` is asked for.
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

/// The Program of algorithm `name`. `root` matters to rooted collectives only (the others state 0), `boxes` to
/// `hierarchical` only (empty: `boxes_for(ranks)`), `shares` to `two_shot` only (empty: equal ones). Throws
/// std::invalid_argument when the table has no such builder or ranks or root do not fit.
[[nodiscard]] Program build(std::string_view name, Collective collective, std::uint32_t ranks, std::uint32_t root = 0,
                            const Boxes& boxes = {}, const Shares& shares = {});

}  // namespace syntony
