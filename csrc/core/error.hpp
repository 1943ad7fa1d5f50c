// The exception for everything that can go wrong between ranks. Its message names the ranks and the operation.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace syntony {

class Error : public std::runtime_error {
 public:
  enum class Kind : std::uint8_t {
    invalid,   // invalid arguments; the group stays usable
    mismatch,  // ranks disagree about the operation
    timeout,   // a rank did not arrive or made no progress in time
    dead,      // a rank's process is gone
    aborted,   // somebody called abort(), or the group failed earlier
    system,    // the operating system refused something
  };

  Error(Kind kind, const std::string& sentence, std::vector<int> ranks = {})
      : std::runtime_error(sentence), kind_(kind), ranks_(std::move(ranks)) {}

  [[nodiscard]] Kind kind() const { return kind_; }
  /// The ranks at fault, as far as known.
  [[nodiscard]] const std::vector<int>& ranks() const { return ranks_; }

 private:
  Kind kind_;
  std::vector<int> ranks_;
};

}  // namespace syntony
