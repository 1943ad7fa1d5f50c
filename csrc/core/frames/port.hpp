// One group's way onto a wire between hosts that is not TCP, before anybody is connected: it has an address, which the
// ranks tell each other by the bootstrap, and from all their addresses it makes the Transport. TCP needs no port: its
// listener is also the control plane's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/frames/frame_wire.hpp"
#include "core/transport.hpp"

namespace syntony {

class Port {
 public:
  virtual ~Port() = default;
  /// Of this rank, at most some thousand bytes that only the port of another rank understands.
  [[nodiscard]] virtual const std::string& address() const = 0;
  /// What carries the frames: "UCX 1.13.1".
  [[nodiscard]] virtual std::string name() const = 0;
  /// To `remote`; `addresses[r]` is rank r's. Once. The port is part of the transport from then on. Connects to nobody:
  /// that is left to the first frame.
  [[nodiscard]] virtual std::unique_ptr<Transport> connect(const StreamShape& shape, const GroupIdentity& identity,
                                                           std::span<const std::uint32_t> remote,
                                                           std::span<const std::string> addresses) = 0;
};

}  // namespace syntony
