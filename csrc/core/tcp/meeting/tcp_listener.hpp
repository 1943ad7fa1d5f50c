// Where a rank listens for the others while a group is formed: one ephemeral port per address of the chosen interfaces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/process/unique_fd.hpp"
#include "core/tcp/meeting/tcp_address.hpp"
#include "core/tcp/meeting/tcp_options.hpp"

namespace syntony {

/// What a rank tells the others about itself. As text, separated by spaces, with `streams=8` if more than one:
/// `machine=ID rails=2 10.0.0.4:4242 10.1.0.4:4243 [fd00::2]:4244 127.0.0.1:4245`.
struct TcpEndpoints {
  static constexpr std::string_view kMachine = "machine=";

  std::string machine;                // machine_identity(); "unknown" never equals another
  std::size_t rails = 0;              // number of addresses, from the first, that belong to equal network cards
  std::size_t streams = 1;            // connections that a network card needs to reach its rate
  std::vector<TcpAddress> addresses;  // best first, loopback last

  [[nodiscard]] std::string text() const;
  /// Throws Error(invalid) naming the word that is wrong.
  [[nodiscard]] static TcpEndpoints parse(std::string_view text);
  /// True if both are in one network namespace of one machine, so that loopback connects them.
  [[nodiscard]] bool together_with(const TcpEndpoints& other) const;
  /// The addresses at which `this` can be reached from `from`: loopback first if they are on one machine, otherwise
  /// never. Rails are rotated: each `flow` begins with the next one.
  [[nodiscard]] std::vector<TcpAddress> reachable_from(const TcpEndpoints& from, std::size_t flow = 0) const;
  /// Data sockets per pair by default: one per rail, times the streams that a rail needs.
  [[nodiscard]] std::uint32_t flows_with(const TcpEndpoints& other) const;
};

class TcpListener {
 public:
  /// Throws Error(invalid) for a filter that leaves nothing, Error(system) if nothing can be bound.
  explicit TcpListener(const TcpOptions& options);

  [[nodiscard]] const TcpEndpoints& endpoints() const { return endpoints_; }
  /// endpoints() as text: this rank's contribution to Bootstrap::all_gather.
  [[nodiscard]] std::string published() const { return endpoints_.text(); }
  /// Listening, non-blocking.
  [[nodiscard]] const std::vector<UniqueFd>& sockets() const { return sockets_; }

 private:
  TcpEndpoints endpoints_;
  std::vector<UniqueFd> sockets_;
};

}  // namespace syntony
