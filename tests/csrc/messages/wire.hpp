// What the message tests need from a wire (ucx.cpp, libfabric.cpp): two ends in this process, and a variant that
// delivers late.
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

/// Rank 0's transport, and a peer that sends it messages.
class Meeting {
 public:
  Meeting() = default;
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  [[nodiscard]] syntony::Transport& transport() { return *transport_; }
  /// Sends like the wire sends a frame.
  virtual void send(const syntony::MessageHeader& message, const std::vector<std::byte>& payload) = 0;
  /// Sends arbitrary bytes in place of the header and of a payload.
  virtual void send_any(const std::vector<std::byte>& header, const std::vector<std::byte>& payload) = 0;
  /// Says that the frames of the message's stream stay with the sender, at `where`. False if this wire has no such
  /// frames.
  virtual bool send_lent(const syntony::MessageHeader& /*message*/, const std::vector<std::byte>& /*where*/) {
    return false;
  }
  /// The same with memory that the receiver can map, if it can map any; nullptr if this wire has no such frames.
  virtual std::byte* lend(const syntony::MessageHeader& /*message*/, std::size_t /*bytes*/) { return nullptr; }
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
  /// The sender's progress.
  virtual void progress() = 0;

  std::unique_ptr<syntony::Transport> transport_;

 private:
  std::optional<syntony::Error> fault_;
};
[[nodiscard]] std::unique_ptr<Meeting> meet();

/// What a link of rank 1 says to the first message that arrives.
using Hearing =
    std::function<std::optional<syntony::Error>(const syntony::MessageHeader&, const std::vector<std::byte>&)>;
[[nodiscard]] Hearing hearing();

/// A wire that reports a message as sent once it has copied it, and delivers it on request, as RDMA may do. Used once.
struct LateWire {
  std::shared_ptr<syntony::Port> here, there;  // messages from `there` are late
  std::function<bool()> under_way;             // true if any are
  std::function<void()> deliver;               // delivers the next one
};
[[nodiscard]] LateWire late_wire();

/// Size of a payload that nobody fetches and whose sender is told so.
extern const std::uint32_t kUnfetched;

}  // namespace tests
