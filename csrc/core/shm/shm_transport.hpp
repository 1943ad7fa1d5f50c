// Streams between the ranks of one host: slots in shared memory, filled and read in place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/shm/shm_segment.hpp"
#include "core/shm/shown_copy.hpp"
#include "core/transport.hpp"

namespace syntony {

class ShmTransport final : public Transport {
 public:
  ShmTransport(ShmSegment& segment, std::uint32_t rank);
  ~ShmTransport() override;

  [[nodiscard]] Sender& sender(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  [[nodiscard]] Receiver& receiver(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) override;
  bool progress() override { return false; }  // peers move the bytes themselves
  [[nodiscard]] bool unsent() const override { return false; }
  bool drain(std::chrono::milliseconds) override { return true; }  // committed frames are already visible to the peers
  void wake() override;
  /// Something other than a stream has news from this rank for all peers: wake() must check all of them.
  void touch_all();
  void sleeping(bool asleep) override;
  bool meets_on(std::uint32_t cpu) override;
  [[nodiscard]] std::optional<std::uint32_t> emptier(std::uint32_t cpu,
                                                     std::span<const std::uint32_t> allowed) const override;
  [[nodiscard]] std::span<const int> descriptors() const override { return {}; }

 private:
  class Outgoing;
  class Incoming;
  [[nodiscard]] std::size_t index(std::uint32_t peer, std::uint32_t channel, std::uint32_t window) const;

  ShmSegment& segment_;
  std::uint32_t rank_;
  std::vector<std::unique_ptr<Outgoing>> outgoing_;  // made at first use
  std::vector<std::unique_ptr<Incoming>> incoming_;
  std::vector<std::uint8_t> touched_;  // by local position: has something new from this rank
  bool any_touched_ = false;
  ShownCopy shown_copy_;  // into slots
};

}  // namespace syntony
