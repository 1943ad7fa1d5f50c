#include "core/tcp/meeting/tcp_options.hpp"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "core/error.hpp"

namespace syntony {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

/// The variable as an integer in [low, high], or `otherwise` if it is not set.
int integer(const char* name, int low, int high, int otherwise) {
  const std::string_view text = variable(name);
  if (text.empty()) return otherwise;
  int value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
    throw Error(Error::Kind::invalid, std::string(name) + "=" + std::string(text) + " is not a whole number from " +
                                          std::to_string(low) + " to " + std::to_string(high));
  }
  return value;
}

}  // namespace

TcpOptions TcpOptions::from_environment() {
  constexpr int kLargest = std::numeric_limits<int>::max() / 2;  // the kernel doubles the given value
  TcpOptions options;
  options.interfaces = variable("SYNTONY_SOCKET_IFNAME");
  options.flows = static_cast<std::uint32_t>(integer("SYNTONY_TCP_FLOWS", 1, kMostFlows, 0));
  options.send_buffer = integer("SYNTONY_TCP_SNDBUF", 4096, kLargest, 0);
  options.receive_buffer = integer("SYNTONY_TCP_RCVBUF", 4096, kLargest, 0);
  options.keepalive = integer("SYNTONY_TCP_KEEPALIVE", 2, 3600, options.keepalive);
  options.encrypts = encryption_wanted() == "tls";
  return options;
}

std::string TcpOptions::encryption_wanted() {
  std::string wanted(variable("SYNTONY_ENCRYPTION"));
  if (wanted.empty()) return "none";
  if (wanted == "none" || wanted == "tls") return wanted;
  throw Error(Error::Kind::invalid, "SYNTONY_ENCRYPTION=" + wanted + " is neither tls nor none");
}

}  // namespace syntony
