// Python's view of the simulator: columns in, columns out.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/simulator/flows.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

template <class Item>
using Column = nb::ndarray<const Item, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Item>
std::span<const Item> view(const Column<Item>& column) {
  return {column.data(), column.size()};
}

/// A NumPy array that takes over the vector.
template <class Item>
nb::ndarray<nb::numpy, Item> array_of(std::vector<Item> items) {
  auto kept = std::make_unique<std::vector<Item>>(std::move(items));
  const std::size_t size = kept->size();
  Item* const data = kept->data();
  const nb::capsule owner(kept.release(),
                          [](void* pointer) noexcept { delete static_cast<std::vector<Item>*>(pointer); });
  return nb::ndarray<nb::numpy, Item>(data, {size}, owner);
}

template <class Member>
auto column_of(const std::vector<LinkRate>& timeline, Member member) {
  std::vector<std::remove_cvref_t<std::invoke_result_t<Member, const LinkRate&>>> column;
  column.reserve(timeline.size());
  for (const LinkRate& entry : timeline) column.push_back(std::invoke(member, entry));
  return array_of(std::move(column));
}

nb::dict simulate_flows(const Column<double>& bytes, const Column<double>& latency, const Column<double>& release,
                        const Column<std::int64_t>& after_offset, const Column<std::int32_t>& after,
                        const Column<std::int64_t>& after_left_offset, const Column<std::int32_t>& after_left,
                        const Column<std::int32_t>& set, const Column<std::uint8_t>& policy,
                        const Column<std::int64_t>& set_offset, const Column<std::int64_t>& path_offset,
                        const Column<std::int32_t>& link, const Column<double>& weight, const Column<double>& capacity,
                        bool timeline) {
  const Flows flows{.bytes = view(bytes),
                    .latency = view(latency),
                    .release = view(release),
                    .after_offset = view(after_offset),
                    .after_left_offset = view(after_left_offset),
                    .after = view(after),
                    .after_left = view(after_left),
                    .set = view(set),
                    .policy = view(policy),
                    .set_offset = view(set_offset),
                    .path_offset = view(path_offset),
                    .link = view(link),
                    .weight = view(weight),
                    .capacity = view(capacity)};
  FlowTimes found;
  {
    const nb::gil_scoped_release unlocked;
    found = simulate(flows, timeline);
  }
  nb::dict result;
  result["start"] = array_of(std::move(found.start));
  result["left"] = array_of(std::move(found.left));
  result["arrival"] = array_of(std::move(found.arrival));
  result["path"] = array_of(std::move(found.path));
  result["times"] = column_of(found.timeline, &LinkRate::time);
  result["link"] =
      column_of(found.timeline, [](const LinkRate& entry) { return static_cast<std::int32_t>(entry.link); });
  result["rate"] = column_of(found.timeline, &LinkRate::rate);
  return result;
}

}  // namespace
}  // namespace syntony

void bind_simulator(nb::module_& m) {
  m.def("simulate_flows", &syntony::simulate_flows, nb::kw_only(), "bytes"_a, "latency"_a, "release"_a,
        "after_offset"_a, "after"_a, "after_left_offset"_a, "after_left"_a, "set"_a, "policy"_a, "set_offset"_a,
        "path_offset"_a, "link"_a, "weight"_a, "capacity"_a, "timeline"_a,
        "Simulates flows on fairly shared links: the columns of synth.flows.Flows in, those of FlowTimes out.");
}
