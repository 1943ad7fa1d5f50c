#include "core/tcp/meeting/tcp_listener.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <functional>
#include <iterator>

#include "core/process/log.hpp"
#include "core/tcp/meeting/tcp_interfaces.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

constexpr std::string_view kRails = "rails=";
constexpr std::string_view kStreams = "streams=";

/// An empty descriptor, with errno set, if the address cannot be used (such as an IPv6 address still being checked).
UniqueFd listen_at(const TcpAddress& address, const TcpOptions& options) {
  UniqueFd socket = open_tcp_socket(address.family());
  size_buffers(socket.get(), options);
  if (bind(socket.get(), address.get(), address.length()) != 0) return {};
  if (listen(socket.get(), SOMAXCONN) != 0) return {};
  return socket;
}

std::size_t number_in(std::string_view word, std::string_view key) {
  const std::string_view digits = word.substr(key.size());
  std::size_t number = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (failure != std::errc{} || end != digits.data() + digits.size()) {
    throw Error(Error::Kind::invalid, "'" + std::string(word) + "' is not a number like " + std::string(key) + "2");
  }
  return number;
}

}  // namespace

std::string TcpEndpoints::text() const {
  std::string result = std::string(kMachine) + machine + " " + std::string(kRails) + std::to_string(rails);
  if (streams > 1) result += " " + std::string(kStreams) + std::to_string(streams);  // kept by every rank of every peer
  for (const TcpAddress& address : addresses) result += " " + address.text();
  return result;
}

TcpEndpoints TcpEndpoints::parse(std::string_view text) {
  TcpEndpoints result;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word.starts_with(kMachine)) {
      result.machine = word.substr(kMachine.size());
    } else if (word.starts_with(kRails)) {
      result.rails = number_in(word, kRails);
    } else if (word.starts_with(kStreams)) {
      result.streams = number_in(word, kStreams);
    } else if (const std::optional<TcpAddress> address = TcpAddress::parse(word)) {
      result.addresses.push_back(*address);
    } else {
      throw Error(Error::Kind::invalid, "'" + std::string(word) + "' is not an endpoint like 10.0.0.4:4242");
    }
  }
  return result;
}

bool TcpEndpoints::together_with(const TcpEndpoints& other) const {
  return machine == other.machine && machine != "unknown";
}

std::vector<TcpAddress> TcpEndpoints::reachable_from(const TcpEndpoints& from, std::size_t flow) const {
  std::vector<TcpAddress> network;
  std::ranges::copy_if(addresses, std::back_inserter(network), std::not_fn(&TcpAddress::loopback));
  if (rails > 0 && rails <= network.size()) {
    const auto turn = network.begin() + static_cast<std::ptrdiff_t>(flow % rails);
    std::rotate(network.begin(), turn, network.begin() + static_cast<std::ptrdiff_t>(rails));
  }
  std::vector<TcpAddress> result;
  if (together_with(from)) std::ranges::copy_if(addresses, std::back_inserter(result), &TcpAddress::loopback);
  result.insert(result.end(), network.begin(), network.end());
  return result;
}

// One thread writes and reads all flows, so one that the card does not need only doubles what the kernel holds, beyond
// its caches: 64 MiB all_gather between two hosts with a wire of 40 Gbit/s 39 ms, and 33 with one flow.
std::uint32_t TcpEndpoints::flows_with(const TcpEndpoints& other) const {
  if (together_with(other)) return 1;
  const std::size_t wanted = std::max(rails, other.rails) * std::max(streams, other.streams);
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(wanted, 1, TcpOptions::kMostFlows));
}

TcpListener::TcpListener(const TcpOptions& options) {
  InterfaceChoice choice = choose_interfaces(network_interfaces(), options.interfaces);
  std::vector<NetworkInterface> wanted = choice.network;
  wanted.insert(wanted.end(), choice.loopback.begin(), choice.loopback.end());

  std::string story;
  for (std::size_t place = 0; place < wanted.size(); ++place) {
    const NetworkInterface& interface = wanted[place];
    UniqueFd socket = listen_at(interface.address, options);
    if (!socket) {
      choice.left_out.push_back(interface.name + " " + interface.address.text() + ": " + sentence_of(errno));
      continue;
    }
    const TcpAddress bound = TcpAddress::local(socket.get());
    story += (story.empty() ? "" : ", ") + interface.name + " " + bound.text();
    endpoints_.addresses.push_back(bound);
    if (place < choice.rails) ++endpoints_.rails;
    sockets_.push_back(std::move(socket));
  }
  if (!choice.network.empty()) endpoints_.streams = streams_of(choice.network.front());
  std::string omitted;
  for (const std::string& reason : choice.left_out) omitted += (omitted.empty() ? "" : "; ") + reason;
  if (sockets_.empty()) throw Error(Error::Kind::system, "cannot listen on any interface: " + omitted);
  endpoints_.machine = machine_identity();
  log(LogLevel::info,
      [&] { return "tcp: listening on " + story + (omitted.empty() ? "" : " (not on " + omitted + ")"); });
}

}  // namespace syntony
