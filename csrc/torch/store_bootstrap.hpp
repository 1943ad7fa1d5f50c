// Ranks that meet through torch's Store.
#pragma once

#include <c10/util/Exception.h>

#include <chrono>
#include <sstream>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "core/bootstrap.hpp"
#include "core/error.hpp"

namespace syntony::glue {

class StoreBootstrap : public Bootstrap {
 public:
  /// `group` stands in keys and messages. `timeout` holds for each all_gather.
  StoreBootstrap(c10::intrusive_ptr<c10d::Store> store, int rank, int size, std::chrono::milliseconds timeout,
                 std::string group)
      : store_(std::move(store)),
        rank_(static_cast<std::uint32_t>(rank)),
        size_(static_cast<std::uint32_t>(size)),
        timeout_(timeout),
        group_(std::move(group)) {}

  [[nodiscard]] std::uint32_t rank() const override { return rank_; }
  [[nodiscard]] std::uint32_t size() const override { return size_; }
  std::vector<std::string> all_gather(const std::string& name, const std::string& blob) override {
    std::vector<std::string> keys;
    for (std::uint32_t r = 0; r < size_; ++r) {
      keys.push_back("syntony/" + group_ + "/" + name + "/" + std::to_string(r));
    }
    store_->set(keys[rank_], std::vector<std::uint8_t>(blob.begin(), blob.end()));
    try {
      store_->wait(keys, timeout_);
    } catch (const c10::DistError& error) {
      // Who is missing? The store may be gone altogether: then its own error says more than we could.
      std::vector<int> missing;
      for (std::uint32_t r = 0; r < size_; ++r) {
        if (!store_->check({keys[r]})) missing.push_back(static_cast<int>(r));
      }
      if (missing.empty()) throw;
      std::ostringstream sentence;
      sentence << "rank " << rank_ << " waited " << timeout_.count() << " ms to form group '" << group_ << "' of "
               << size_ << " ranks: rank" << (missing.size() == 1 ? " " : "s ");
      for (std::size_t i = 0; i < missing.size(); ++i) sentence << (i == 0 ? "" : ", ") << missing[i];
      sentence << " did not come";
      throw Error(Error::Kind::timeout, sentence.str(), std::move(missing));
    }
    std::vector<std::string> blobs;
    for (const std::string& key : keys) blobs.push_back(store_->get_to_str(key));
    return blobs;
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::uint32_t rank_;
  std::uint32_t size_;
  std::chrono::milliseconds timeout_;
  std::string group_;
};

}  // namespace syntony::glue
