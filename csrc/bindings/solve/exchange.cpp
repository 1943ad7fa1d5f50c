// Plans of exchanges among boxes for Python: a matrix as a NumPy column in, pieces as columns out.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>

#include "bindings/columns.hpp"
#include "solve/graph/exchange_plan.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_exchange(nb::module_& m) {
  using syntony::ExchangePlan;
  nb::class_<ExchangePlan> plan(m, "ExchangePlan", "Pieces as columns; see csrc/solve/graph/exchange_plan.hpp.");
  const auto add = [&](const char* name, auto member) {
    plan.def_prop_ro(
        name, [member](const ExchangePlan& held) { return syntony::array_of(held.*member); }, nb::rv_policy::move);
  };
  add("length", &ExchangePlan::length);
  add("stage", &ExchangePlan::stage);
  add("source", &ExchangePlan::from);
  add("out", &ExchangePlan::out);
  add("into", &ExchangePlan::in);
  add("target", &ExchangePlan::to);
  add("offset", &ExchangePlan::offset);
  add("bytes", &ExchangePlan::bytes);
  m.def(
      "plan_exchange",
      [](std::size_t boxes, std::size_t per_box, const syntony::Column<std::int64_t>& matrix) {
        const nb::gil_scoped_release unlocked;
        return syntony::plan_exchange(boxes, per_box, syntony::span_of(matrix));
      },
      "boxes"_a, "per_box"_a, "matrix"_a,
      "Which bytes of an all_to_all_v go over which NIC in which stage. ValueError for a negative entry.");
}
