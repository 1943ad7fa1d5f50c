// Channels through the GPUs of a host, for Python: hops and links as NumPy columns in, orders out.
#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "bindings/columns.hpp"
#include "solve/graph/channel_search.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_channels(nb::module_& m) {
  using syntony::Column;
  using syntony::span_of;
  m.def(
      "find_channels",
      [](std::uint32_t gpus, std::uint32_t nets, bool closed, const Column<std::int64_t>& offset,
         const Column<std::int32_t>& link, const Column<double>& cost, const Column<double>& room, std::uint32_t most,
         std::uint64_t steps, std::uint32_t turn) {
        const syntony::ChannelProblem problem{gpus,          nets,          closed,       span_of(offset),
                                              span_of(link), span_of(cost), span_of(room)};
        std::vector<std::int32_t> found;
        {
          const nb::gil_scoped_release unlocked;
          found = syntony::find_channels(problem, most, steps, turn);
        }
        return syntony::array_of(std::move(found));
      },
      "gpus"_a, "nets"_a, "closed"_a, "offset"_a, "link"_a, "cost"_a, "room"_a, "most"_a, "steps"_a, "turn"_a = 0,
      "Channels that the links carry together, by depth-first search of so many steps: for each its network device (-1 "
      "without) and its GPUs. See csrc/solve/graph/channel_search.hpp.");
}
