// A Tuner written in Python: any object with
//
//      note(rank, boxes) -> str
//      agreed(boxes, notes) -> ([(name, Program), ..], [(table, collective, [(last bytes, algorithm, why), ..]), ..],
//                               levels, (ways to aggregators by rank, their secret))
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/selection/tuner.hpp"

namespace syntony {

using SizeRangeTuple = std::tuple<std::size_t, std::string, std::string>;  // last bytes, algorithm, why

inline std::vector<SizeRange> size_ranges_of(const std::vector<SizeRangeTuple>& tuples) {
  std::vector<SizeRange> ranges;
  ranges.reserve(tuples.size());
  for (const auto& [last, algorithm, why] : tuples) ranges.push_back({last, algorithm, why});
  return ranges;
}

/// The object is never released: groups may outlive the interpreter. A process needs only one.
class PythonTuner : public Tuner {
 public:
  explicit PythonTuner(const nanobind::object& object) : object_(object.inc_ref()) {}

  /// Null for None.
  static std::shared_ptr<const Tuner> of(const nanobind::object& object) {
    return object.is_none() ? nullptr : std::make_shared<const PythonTuner>(object);
  }

  [[nodiscard]] std::string metadata(std::uint32_t rank, const Boxes& boxes) const override {
    const nanobind::gil_scoped_acquire lock;
    return nanobind::cast<std::string>(object_.attr("note")(rank, boxes));
  }

  [[nodiscard]] Tuning agreed(const Boxes& boxes, const std::vector<std::string>& metadata) const override {
    using Table = std::tuple<std::string, std::string, std::vector<SizeRangeTuple>>;
    const nanobind::gil_scoped_acquire lock;
    const nanobind::object answer = object_.attr("agreed")(boxes, metadata);
    Tuning tuning;
    for (const nanobind::handle entry : answer[0]) {
      tuning.programs.emplace_back(nanobind::cast<std::string>(entry[0]),
                                   nanobind::cast<std::shared_ptr<Program>>(entry[1]));
    }
    for (const auto& [name, collective, ranges] : nanobind::cast<std::vector<Table>>(answer[1])) {
      tuning.tables.push_back({name, collective_named(collective), size_ranges_of(ranges)});
    }
    tuning.levels = nanobind::cast<Boxes>(answer[2]);
    tuning.aggregation = {nanobind::cast<std::vector<std::string>>(answer[3][0]),
                          nanobind::cast<std::string>(answer[3][1])};
    return tuning;
  }

 private:
  nanobind::handle object_;
};

}  // namespace syntony
