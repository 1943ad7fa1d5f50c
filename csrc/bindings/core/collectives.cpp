// The core's table of the eight collectives, for Python.
#include "core/program/collective.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/one_host/shared_way.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace syntony;

/// collective.hpp's table.
void bind_collectives(nb::module_& m) {
  m.def(
      "shared_choices",
      [](std::string_view collective, std::uint32_t ranks, std::size_t bytes) {
        std::vector<std::pair<std::string, bool>> choices;
        for (const auto& [way, streams] : shared_choices(collective_named(collective), ranks, bytes, true)) {
          choices.emplace_back(name_of(way), streams);
        }
        return choices;
      },
      "collective"_a, "ranks"_a, "bytes"_a,
      "The ways in which algorithm `shared` may move blocks of so many bytes where peers' memory can be read, the "
      "usual\n"
      "one first: `exchange` (copies through the cache, in pieces of shared_piece_bytes()), `two-shot` (the same, of "
      "sums\n"
      "in shares) or `reference` (straight from the peers' buffers); and whether outputs are written past the caches.\n"
      "Where there are several, a group takes the one that it has measured to be the fastest.");
  m.def("shared_piece_bytes", &piece_bytes, "ranks"_a, "The most that one of so many ranks shows in a round.");
  m.def("shared_stages_swap", &swaps_stages, "ranks"_a,
        "Whether so many ranks swap the buffers in which they show pieces, so that each writes what it has read.");
  m.def("shared_turn_bytes", &turn_bytes, "ranks"_a, "bytes"_a,
        "Through how many bytes of each of its two buffers one of so many ranks rotates pieces of so many bytes that "
        "it shows; 0 if it swaps them.");
  nb::dict all;
  for (const CollectiveFacts& facts : kCollectives) {
    nb::dict row;
    row["reduces"] = facts.reduces;
    row["root_gives"] = facts.root_gives;
    row["root_takes"] = facts.root_takes;
    row["by_source"] = facts.by_source;
    row["by_destination"] = facts.by_destination;
    all[nb::str(facts.name.data(), facts.name.size())] = row;
  }
  m.attr("COLLECTIVES") = all;
}
