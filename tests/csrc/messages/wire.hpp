// What the tests of messages need of a wire (ucx.cpp, libfabric.cpp): two ends of it in this process, and one that is
// late.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/frames/message_wire.hpp"
#include "core/frames/port.hpp"

namespace tests {

inline constexpr syntony::StreamShape kShape{
    .ranks = 3, .channels = 2, .windows = 2, .depth = 4, .slot_bytes = 256 * 1024};
inline constexpr syntony::GroupIdentity kSelf{
    .token = {0x1234567890abcdef, 0xfedcba0987654321}, .group = 7, .rank = 0, .ranks = 3};

inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("failed: " + what);
}

/// Rank 0's transport, and somebody who sends it messages.
class Meeting {
 public:
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  [[nodiscard]] syntony::Transport& transport() { return *transport_; }
  /// As the wire sends a frame.
  virtual void send(const syntony::MessageHeader& message, const std::vector<std::byte>& payload) = 0;
  /// Any bytes in the place of the header, and in that of a payload.
  virtual void send_any(const std::vector<std::byte>& header, const std::vector<std::byte>& payload) = 0;
  /// Makes progress at both ends until `done`.
  void eventually(const std::function<bool()>& done) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(60);
    while (!done()) {
      progress();
      if (!fault_) {
        try {
          transport_->progress();
        } catch (const syntony::Error& error) {
          fault_ = error;
        }
      }
      require(Clock::now() < deadline, "it comes within a minute");
    }
  }
  [[nodiscard]] const std::optional<syntony::Error>& fault() const { return fault_; }

 protected:
  /// Of who sends.
  virtual void progress() = 0;

  std::unique_ptr<syntony::Transport> transport_;

 private:
  std::optional<syntony::Error> fault_;
};
[[nodiscard]] std::unique_ptr<Meeting> meet();

/// What a link of rank 1's says to a message that is the first to come.
using Hearing =
    std::function<std::optional<syntony::Error>(const syntony::MessageHeader&, const std::vector<std::byte>&)>;
[[nodiscard]] Hearing hearing();

/// A wire that calls a message sent when it has copied it, and delivers it when it is told to: what RDMA may do. Once.
struct LateWire {
  std::shared_ptr<syntony::Port> here, there;  // what goes from there is late
  std::function<bool()> under_way;             // something is
  std::function<void()> deliver;               // the next of it
};
[[nodiscard]] LateWire late_wire();

/// Bytes of a payload that nobody fetches, of which its sender is told.
extern const std::uint32_t kUnfetched;

}  // namespace tests
