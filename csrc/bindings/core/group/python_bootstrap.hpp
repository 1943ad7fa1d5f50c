// How ranks meet, implemented in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/bootstrap.hpp"

namespace syntony {

/// Any Python object with `rank`, `size` and `all_gather(name, blob) -> list[bytes]`.
class PythonBootstrap : public Bootstrap {
 public:
  explicit PythonBootstrap(const nanobind::object& object)
      : object_(object),
        rank_(nanobind::cast<std::uint32_t>(object.attr("rank"))),
        size_(nanobind::cast<std::uint32_t>(object.attr("size"))) {}

  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  std::vector<std::string> all_gather(const std::string& name, const std::string& blob) override {
    const nanobind::gil_scoped_acquire lock;
    const nanobind::object gathered = object_.attr("all_gather")(name, nanobind::bytes(blob.data(), blob.size()));
    std::vector<std::string> blobs;
    for (const nanobind::handle item : gathered) {
      const auto bytes = nanobind::cast<nanobind::bytes>(item);
      blobs.emplace_back(bytes.c_str(), bytes.size());
    }
    if (blobs.size() != size_) {
      throw std::invalid_argument("the bootstrap's all_gather gave " + std::to_string(blobs.size()) + " blobs for " +
                                  std::to_string(size_) + " ranks");
    }
    return blobs;
  }
  [[nodiscard]] std::string secret() const override {
    const nanobind::gil_scoped_acquire lock;
    const nanobind::object secret = nanobind::getattr(object_, "secret", nanobind::bytes("", 0));
    const auto bytes = nanobind::cast<nanobind::bytes>(secret);
    return {bytes.c_str(), bytes.size()};
  }

 private:
  const nanobind::object& object_;  // owned by the caller
  std::uint32_t rank_, size_;
};

}  // namespace syntony
