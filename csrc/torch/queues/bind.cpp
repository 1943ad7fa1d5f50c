#include "torch/queues/bind.hpp"

#include <pybind11/chrono.h>

#include <tuple>

#include "torch/queues/comm_queues.hpp"
#include "torch/queues/tree_sum.hpp"

namespace syntony::overlap {

namespace py = pybind11;

void bind(py::module_& module) {
  py::enum_<Move>(module, "Move")
      .value("ALL_REDUCE", Move::all_reduce)
      .value("REDUCE_SCATTER", Move::reduce_scatter)
      .value("EXCHANGE_SUM", Move::exchange_sum)
      .value("ALL_GATHER", Move::all_gather)
      .value("ALL_TO_ALL", Move::all_to_all)
      .value("BROADCAST", Move::broadcast)
      .value("SEND", Move::send)
      .value("RECV", Move::recv);

  py::class_<CommOp>(module, "Slot")
      .def(py::init(
               [](std::string name, Move move, std::size_t bytes, int peer, int tag, int next, bool announce,
                  std::size_t runs) { return CommOp{std::move(name), move, bytes, peer, tag, next, announce, runs}; }),
           py::arg("name"), py::arg("move"), py::arg("bytes"), py::arg("peer") = -1, py::arg("tag") = 0,
           py::arg("next") = -1, py::arg("announce") = false, py::arg("runs") = 1);

  py::class_<Order>(module, "Order")
      .def(py::init(
               [](std::string name, c10::intrusive_ptr<c10d::Backend> backend, std::vector<int> ops,
                  std::size_t window) { return Order{std::move(name), std::move(backend), std::move(ops), window}; }),
           py::arg("name"), py::arg("backend"), py::arg("ops"), py::arg("window") = 0);

  const py::call_guard<py::gil_scoped_release> unlocked;
  py::class_<CommQueues>(module, "Lanes")
      .def(py::init<std::vector<CommOp>, std::vector<Order>>(), py::arg("slots"), py::arg("orders"))
      .def(
          "ready",
          [](CommQueues& self, int op, at::Tensor input, at::Tensor output, std::vector<std::int64_t> input_rows,
             std::vector<std::int64_t> output_rows) {
            self.ready(op, {std::move(input), std::move(output), std::move(input_rows), std::move(output_rows)});
          },
          py::arg("op"), py::arg("input"), py::arg("output"), py::arg("input_rows") = std::vector<std::int64_t>(),
          py::arg("output_rows") = std::vector<std::int64_t>(), unlocked)
      .def("wait", &CommQueues::wait, py::arg("op"), py::arg("patience"), py::arg("behind") = 0, unlocked)
      .def("ended", &CommQueues::ended, unlocked)
      .def("take_records",
           [](CommQueues& self) {
             std::vector<std::tuple<int, std::uint64_t, std::int64_t, std::int64_t, std::int64_t>> records;
             for (const Record& one : self.take_records()) {
               records.emplace_back(one.op, one.step, one.ready, one.begin, one.end);
             }
             return records;
           })
      .def("failed", &CommQueues::failed)
      .def("close", &CommQueues::close, unlocked);

  module.def("square_sums", &square_sums, py::arg("elements"), unlocked);
  module.def("tree_sum", &tree_sum, py::arg("output"), py::arg("terms"), py::arg("count"), unlocked);
}

}  // namespace syntony::overlap
