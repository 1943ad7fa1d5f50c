// The contents of this process's recorders, for Python; being per process, they include torch's groups.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "core/process/log.hpp"
#include "core/recorder/recorder_dump.hpp"

namespace nb = nanobind;
using namespace nb::literals;

void bind_recorder(nb::module_& m) {
  m.def(
      "dump_records",
      [](const std::string& folder) {
        std::vector<std::string> paths;
        const nb::gil_scoped_release unlocked;
        for (const std::filesystem::path& path : syntony::dump_records(folder)) paths.push_back(path.string());
        return paths;
      },
      "folder"_a, "Writes `syntony_rank_N` for each rank in this process; returns the paths.");
  m.def(
      "counters", [] { return syntony::counters_text(); }, nb::call_guard<nb::gil_scoped_release>(),
      "The counters of all groups of this process as Prometheus text.");
}
