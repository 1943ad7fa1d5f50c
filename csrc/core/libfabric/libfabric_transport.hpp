// Transport (transport.hpp) over libfabric, to ranks of other hosts.
//
//      LibfabricTransport -- LibfabricLink (one per neighbour) -- FrameSender, FrameReceiver (one per stream in use)
//            \-- LibfabricEndpoint        \-- buffers for messages, whoever sends them
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/frames/message_transport.hpp"
#include "core/libfabric/libfabric_endpoint.hpp"

namespace syntony {

class LibfabricTransport final : public MessageTransport {
 public:
  LibfabricTransport(const StreamShape& shape, const GroupIdentity& identity,
                     std::shared_ptr<LibfabricEndpoint> endpoint, std::span<const std::uint32_t> remote,
                     std::span<const std::string> addresses);
  LibfabricTransport(const LibfabricTransport&) = delete;
  LibfabricTransport& operator=(const LibfabricTransport&) = delete;
  ~LibfabricTransport() override;

  bool drain(std::chrono::milliseconds timeout) override;

 private:
  static constexpr std::size_t kBuffers = 32;  // posted; further messages wait with the provider

  /// A posted buffer that receives a message.
  struct Buffer final : LibfabricOperation {
    explicit Buffer(LibfabricTransport& of);
    void done(int error, std::size_t came) override;

    LibfabricTransport& transport;
    std::vector<std::byte> bytes;
  };

  [[nodiscard]] std::unique_ptr<MessageLink> make_link(std::uint32_t rank, const std::string& address) override;
  bool poll() override;
  [[nodiscard]] bool arm() override;
  void take(std::span<const std::byte> bytes);
  void post_buffers();
  void abandon();

  std::shared_ptr<LibfabricEndpoint> endpoint_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Buffer*> unposted_;
  bool drained_ = false;
};

}  // namespace syntony
