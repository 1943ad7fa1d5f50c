// The core's table of the eight collectives, for Python.
#include "core/program/collective.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/one_host/shared_way.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace syntony;

/// collective.hpp's table.
void bind_collectives(nb::module_& m) {
  m.def(
      "shared_way",
      [](std::string_view collective, std::uint32_t ranks, std::size_t bytes) {
        return std::string(name_of(shared_way(collective_named(collective), ranks, bytes, true)));
      },
      "collective"_a, "ranks"_a, "bytes"_a,
      "How algorithm `shared` moves blocks of so many bytes where peers' memory can be read: `exchange` (copies "
      "through\n"
      "the cache, in pieces of shared_piece_bytes()), `two-shot` (the same, of sums in shares) or `reference` "
      "(straight\n"
      "from the peers' buffers).");
  m.def(
      "shared_outputs_streamed",
      [](std::string_view collective, std::uint32_t ranks, std::size_t bytes) {
        return outputs_streamed(collective_named(collective), ranks, bytes);
      },
      "collective"_a, "ranks"_a, "bytes"_a, "Whether copies through the cache reach outputs past it.");
  m.def("shared_piece_bytes", &piece_bytes, "ranks"_a, "The most that one of so many ranks shows in a round.");
  m.def("shared_turn_bytes", &turn_bytes, "ranks"_a, "bytes"_a,
        "Through how many bytes of each of its two buffers one of so many ranks rotates pieces of so many bytes that "
        "it shows.");
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
