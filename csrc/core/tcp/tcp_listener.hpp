// Where a rank waits for the others while a group is made: one ephemeral port per address of the chosen interfaces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/tcp/tcp_address.hpp"
#include "core/tcp/tcp_options.hpp"
#include "core/unique_fd.hpp"

namespace syntony {

/// What a rank tells the others about itself. As text, space-separated:
/// `machine=ID 10.0.0.4:4242 [fd00::2]:4243 127.0.0.1:4244`.
struct TcpEndpoints {
  std::string machine;                // machine_identity(); "unknown" never equals another
  std::vector<TcpAddress> addresses;  // best first, loopback last

  [[nodiscard]] std::string text() const;
  /// Throws Error(invalid) naming the word that is wrong.
  [[nodiscard]] static TcpEndpoints parse(std::string_view text);
  /// The addresses at which `this` can be reached from `from`: loopback first on the same machine, never elsewhere.
  [[nodiscard]] std::vector<TcpAddress> reachable_from(const TcpEndpoints& from) const;
};

class TcpListener {
 public:
  /// Throws Error(invalid) for a filter that leaves nothing, Error(system) when nothing can be bound.
  explicit TcpListener(const TcpOptions& options);

  [[nodiscard]] const TcpEndpoints& endpoints() const { return endpoints_; }
  /// endpoints() as text: what this rank brings to Bootstrap::all_gather.
  [[nodiscard]] std::string published() const { return endpoints_.text(); }
  /// Listening, non-blocking.
  [[nodiscard]] const std::vector<UniqueFd>& sockets() const { return sockets_; }

 private:
  TcpEndpoints endpoints_;
  std::vector<UniqueFd> sockets_;
};

}  // namespace syntony
