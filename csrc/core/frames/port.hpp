// One group's access to a wire between hosts other than TCP, before any connection exists: it has an address, which the
// ranks exchange through the bootstrap, and makes the Transport from all their addresses. TCP needs no port: its
// listener also serves the control plane.
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
  /// This rank's address: at most some thousand bytes, understood only by another rank's port.
  [[nodiscard]] virtual const std::string& address() const = 0;
  /// What carries the frames: "UCX 1.13.1".
  [[nodiscard]] virtual std::string name() const = 0;
  /// To `remote`; `addresses[r]` is rank r's. Call once; the port then belongs to the transport. Does not connect: that
  /// is left to the first frame.
  [[nodiscard]] virtual std::unique_ptr<Transport> connect(const StreamShape& shape, const GroupIdentity& identity,
                                                           std::span<const std::uint32_t> remote,
                                                           std::span<const std::string> addresses) = 0;
};

}  // namespace syntony
