// The aggregator and its clients for Python. Buffers are passed as addresses (collectives/aggregation.py knows what
// arrays are); every call that may block releases the interpreter's lock and checks for signals several times per
// second.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/in_network/aggregation_client.hpp"
#include "emulation/aggregator/aggregator.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace syntony {
namespace {

using std::chrono::milliseconds;
using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check_signals() {
  const nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

milliseconds from_seconds(double seconds) {
  if (std::isnan(seconds) || seconds <= 0) throw std::invalid_argument("a timeout is a positive number of seconds");
  return milliseconds(static_cast<std::int64_t>(std::ceil(std::min(seconds, 1e6) * 1e3)));
}

NumberFormat format_named(std::string_view name) {
  if (const auto format = number_format_named(name)) return *format;
  std::string known;
  for (const std::string_view format : kNumberFormats) known += (known.empty() ? "" : ", ") + std::string(format);
  throw std::invalid_argument("unknown number format '" + std::string(name) + "'; known are " + known);
}

DType dtype_named(std::string_view name) {
  const auto at = std::ranges::find(kDTypes, name, &DTypeTraits::name);
  if (at == kDTypes.end()) throw std::invalid_argument("unknown dtype '" + std::string(name) + "'");
  return static_cast<DType>(at - kDTypes.begin());
}

class PythonAggregator {
 public:
  PythonAggregator(std::string listen, std::size_t slots, std::size_t slot_bytes,
                   const std::vector<std::string>& formats, std::size_t tenants, std::string secret, bool shared,
                   bool on_arrival)
      : value_(options(std::move(listen), slots, slot_bytes, formats, tenants, std::move(secret), shared, on_arrival)) {
  }

  [[nodiscard]] std::string address() const { return value_.address().text(); }

  void run() {
    stopped_ = false;
    const nb::gil_scoped_release unlocked;
    value_.run([this] {
      check_signals();
      return !stopped_;
    });
  }

  void stop() { stopped_ = true; }

 private:
  static AggregatorOptions options(std::string listen, std::size_t slots, std::size_t slot_bytes,
                                   const std::vector<std::string>& formats, std::size_t tenants, std::string secret,
                                   bool shared, bool on_arrival) {
    AggregatorOptions options;
    options.listen = std::move(listen);
    options.slots = slots;
    options.slot_bytes = slot_bytes;
    for (const std::string& format : formats) options.formats.push_back(format_named(format));
    options.tenants = tenants;
    options.secret = std::move(secret);
    options.shared = shared;
    options.on_arrival = on_arrival;
    return options;
  }

  Aggregator value_;
  std::atomic<bool> stopped_ = false;
};

class PythonAggregationClient {
 public:
  PythonAggregationClient(std::vector<std::string> ways, const nb::bytes& token, std::uint32_t rank, double timeout,
                          std::string secret) {
    Token name{};
    if (token.size() != sizeof(name)) throw std::invalid_argument("a token has 16 bytes");
    std::memcpy(name.data(), token.c_str(), sizeof(name));
    if (rank >= ways.size()) throw std::invalid_argument("each rank has a way to its aggregator");
    const AggregationWays all{std::move(ways), std::move(secret)};
    const milliseconds patience = from_seconds(timeout);
    const nb::gil_scoped_release unlocked;
    value_ = std::make_unique<AggregationClient>(all, name, rank, patience, check_signals);
  }

  void all_reduce(std::string_view format, std::string_view dtype, std::uintptr_t input, std::uintptr_t output,
                  std::size_t elements, double timeout) {
    const NumberFormat number_format = format_named(format);
    const DType type = dtype_named(dtype);
    const milliseconds patience = from_seconds(timeout);
    const nb::gil_scoped_release unlocked;
    const std::scoped_lock one_at_a_time(mutex_);
    value_->all_reduce(number_format, type,
                       reinterpret_cast<const std::byte*>(input),  // NOLINT(performance-no-int-to-ptr)
                       reinterpret_cast<std::byte*>(output),       // NOLINT(performance-no-int-to-ptr)
                       elements, patience, check_signals);
  }

  void close() {
    const nb::gil_scoped_release unlocked;
    const std::scoped_lock one_at_a_time(mutex_);
    value_->close();
  }
  [[nodiscard]] std::size_t window() const { return value_->window(); }
  [[nodiscard]] std::size_t slot_bytes() const { return value_->slot_bytes(); }
  [[nodiscard]] std::uint64_t resent() const { return value_->resent(); }
  [[nodiscard]] std::uint64_t asked() const { return value_->asked(); }
  [[nodiscard]] std::uint64_t passed_on() const { return value_->passed_on(); }
  [[nodiscard]] std::size_t under_way() const { return value_->under_way(); }

 private:
  std::mutex mutex_;  // operations of several threads run one after another
  std::unique_ptr<AggregationClient> value_;
};

void sum_bound(std::string_view format, const Floats& dst, const std::vector<ConstFloats>& sources) {
  const NumberFormat number_format = format_named(format);
  std::vector<const float*> pointers;
  for (const ConstFloats& source : sources) {
    if (source.size() != dst.size()) throw std::invalid_argument("sources and sum must have equally many elements");
    pointers.push_back(source.data());
  }
  const nb::gil_scoped_release unlocked;
  sum_through_switch(number_format, {dst.data(), dst.size()}, pointers);
}

}  // namespace
}  // namespace syntony

void bind_aggregation(nb::module_& m) {
  using namespace syntony;
  m.def(
      "sum_through_switch", &sum_bound, "number_format"_a, "dst"_a, "sources"_a,
      "dst = the float32 sum that workers holding `sources` get from a switch that adds in `number_format`: scaled,\n"
      "added, rounded and scaled back as they and the switch do it together. ValueError for a format without float32.");
  m.def(
      "carries",
      [](std::string_view format, std::string_view dtype) { return carries(format_named(format), dtype_named(dtype)); },
      "number_format"_a, "dtype"_a, "Whether elements of `dtype` can travel to a switch in `number_format`.");

  nb::class_<PythonAggregator>(m, "Aggregator", "A switch that adds, in software: one thread, any number of jobs.")
      .def(nb::init<std::string, std::size_t, std::size_t, const std::vector<std::string>&, std::size_t, std::string,
                    bool, bool>(),
           "listen"_a = "127.0.0.1:0", "slots"_a = 256, "slot_bytes"_a = kPacketBytes,
           "number_formats"_a = std::vector<std::string>(), "tenants"_a = 1, "secret"_a = "", "shared"_a = false,
           "on_arrival"_a = false,
           "Listens. `number_formats`: those it adds; empty: all. `secret`: what workers must know; beyond loopback "
           "there\n"
           "must be one. `shared`: slots are whose packet comes first, and a server above adds what finds none.\n"
           "`on_arrival`: parts are added as they come, not in rank order.\n"
           "ValueError for options that do not fit together,\n"
           "CommunicationError when the address cannot be used.")
      .def_prop_ro("address", &PythonAggregator::address, "ADDRESS:PORT where workers connect.")
      .def("run", &PythonAggregator::run, "Serves until stop() or a signal handler that raises.")
      .def("stop", &PythonAggregator::stop, "Makes run() return soon; from any thread.");

  nb::class_<PythonAggregationClient>(
      m, "AggregationClient",
      "A worker's end of a job at an aggregator. Its methods raise CommunicationError for what\n"
      "goes wrong between ranks.")
      .def(nb::init<std::vector<std::string>, const nb::bytes&, std::uint32_t, double, std::string>(), "ways"_a,
           "token"_a, "rank"_a, "timeout"_a, "secret"_a = "",
           "Joins the job that the 16 bytes of `token` name. `ways`: by rank, its aggregator's ADDRESS:PORT, then "
           "those\n"
           "above it, with commas between. Collective: returns when all workers have come.")
      .def("all_reduce", &PythonAggregationClient::all_reduce, "number_format"_a, "dtype"_a, "input"_a, "output"_a,
           "elements"_a, "timeout"_a,
           "The memory at address `output` = the sum of all workers' at `input` (the same or apart). Collective.")
      .def("close", &PythonAggregationClient::close, "Leaves the job.")
      .def_prop_ro("window", &PythonAggregationClient::window, "Chunks that may be in flight at once.")
      .def_prop_ro("slot_bytes", &PythonAggregationClient::slot_bytes, "Bytes of a chunk.")
      .def_prop_ro("resent", &PythonAggregationClient::resent, "Packets that were sent again, as they had not arrived.")
      .def_prop_ro("asked", &PythonAggregationClient::asked, "Questions after sums that had not come.")
      .def_prop_ro("passed_on", &PythonAggregationClient::passed_on,
                   "Sums that an aggregator of shared slots had no slot for.")
      .def_prop_ro("under_way", &PythonAggregationClient::under_way, "Packets that it would have under way now.");
}
