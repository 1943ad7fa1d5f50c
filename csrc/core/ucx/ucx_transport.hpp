// Transport (transport.hpp) over UCX, to ranks of other hosts (on emulated ones UCX finds that they share a machine).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/frames/message_transport.hpp"
#include "core/ucx/ucx_link.hpp"
#include "core/ucx/ucx_worker.hpp"

namespace syntony {

class UcxTransport final : public MessageTransport {
 public:
  // The kinds of active messages.
  static constexpr unsigned kMessage = 1;  // a credit, or a header and its payload
  static constexpr unsigned kLent = 2;     // from this frame on, and where its stream is
  static constexpr unsigned kReads = 3;    // a credit for nothing: who sends it can read memory that it is lent
  static constexpr unsigned kWake = 4;     // a credit for nothing: there is something new in such memory

  UcxTransport(const StreamShape& shape, const GroupIdentity& identity, std::shared_ptr<UcxWorker> worker,
               std::span<const std::uint32_t> remote, std::span<const std::string> addresses);
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;
  ~UcxTransport() override;
  bool progress() override;
  void sleeping(bool asleep) override;
  bool meets_on(std::uint32_t cpu) override;
  [[nodiscard]] std::optional<std::uint32_t> emptier(std::uint32_t cpu,
                                                     std::span<const std::uint32_t> allowed) const override;

 private:
  [[nodiscard]] std::unique_ptr<MessageLink> make_link(std::uint32_t rank, const std::string& address) override;
  bool poll() override { return worker_->progress(); }
  [[nodiscard]] bool arm() override { return worker_->arm(); }
  template <unsigned kind>
  void handle();
  void take(unsigned kind, const void* header, std::size_t header_bytes, const void* data, std::size_t bytes,
            bool rendezvous);

  std::shared_ptr<UcxWorker> worker_;
  unsigned turns_ = 0;  // of progress()
};

}  // namespace syntony
