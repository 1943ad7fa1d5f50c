// How the ranks of a group that share no machine get connected, each with each:
//
//      rank 0        rank 1        rank 2          of every pair the lower rank accepts and the higher dials:
//     accepts <====== dials                        `flows` data sockets and one control socket, each opened by
//     accepts <==================== dials          a handshake that proves both to belong to this group
//                   accepts <====== dials
//
// One poll loop does all of it at once, under one deadline. Whoever sends anything but the right Hello is dropped
// unheard, and never disturbs the others: silent ones after a few seconds, or earlier where many wait. Should a rank be
// dropped among them, it dials again. A rank with several addresses is tried at each of them.
//
// A group's use of it:
//
//   const TcpOptions options = TcpOptions::from_environment();
//   TcpListener listener(options);
//   const std::vector<std::string> published = bootstrap.all_gather("tcp", listener.published());
//   const TcpIdentity identity{.token = token, .group = 7, .rank = bootstrap.rank(), .ranks = bootstrap.size()};
//   std::vector<TcpPeer> peers =
//       connect_mesh(std::move(listener), options, identity, published, remote_ranks, std::chrono::seconds(30));
//   TcpTransport transport(shape, identity, peers);  // takes the data sockets
//   TcpControl control(identity, peers);             // takes the control sockets
//
//   Sender& sender = transport.sender(peer, channel, window);
//   if (std::byte* room = sender.reserve(bytes)) {
//     std::memcpy(room, data, bytes);
//     sender.commit({.token = identity.frame_token(), .group = identity.group, .channel = channel, .length = bytes});
//   }
//   while (transport.progress()) {
//   }
//   Receiver& receiver = transport.receiver(peer, channel, window);
//   if (const FrameHeader* header = receiver.front()) {
//     use(receiver.payload(), header->length);
//     receiver.release();
//   }
//   ...
//   transport.drain(std::chrono::seconds(1));  // in this order: what was sent arrives, then the goodbye,
//   control.leave();                           // then the destructors close the sockets
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tcp/meeting/tcp_listener.hpp"
#include "core/tcp/tcp_wire.hpp"

namespace syntony {

/// The sockets to one rank.
struct TcpPeer {
  std::uint32_t rank = 0;
  std::string endpoint;  // its end of the control connection, for messages
  UniqueFd control;
  std::vector<UniqueFd> flows;
};

/// Connects this rank with `remote` (ranks of the group, not this one), which must do the same at the same time.
/// `published[r]` is what rank r's TcpListener::published() said; entries of ranks not in `remote` are not read.
/// The result is in the order of `remote`. The listener is closed in any case.
/// Throws Error naming the ranks: `system` when one cannot be reached at any of its addresses, `dead` when one ended
/// meanwhile, `mismatch` when SYNTONY_TCP_FLOWS differ or two processes claim to be the same rank, `timeout` for those
/// that did not come.
[[nodiscard]] std::vector<TcpPeer> connect_mesh(TcpListener listener, const TcpOptions& options,
                                                const TcpIdentity& identity, std::span<const std::string> published,
                                                std::span<const std::uint32_t> remote,
                                                std::chrono::milliseconds timeout);

}  // namespace syntony
