// Which network interfaces a group uses, and why.
//
// SYNTONY_SOCKET_IFNAME is a comma-separated list:
//
//  name     use this interface                      eth0
//  name*    use interfaces that begin like this     ib*
//  ^item    do not use it                           ^docker0, ^veth*
//
// A list that begins with ^ is read as NCCL reads it: it excludes all its items, and names are prefixes (=name: the
// whole name). ^lo,docker uses neither lo nor docker0.
//
// If any item says `use`, only interfaces that are used and not excluded count, in the order of the list; with
// exclusions alone, everything else counts. Without the list: every interface that is up, container bridges last (their
// address is often the same on every host). Ranks of one machine meet on the loopback interface unless excluded by
// `^lo`. Link-local addresses are never used: they are meaningless on another host.
//
// Interfaces equal to the best one in driver, speed and address family are rails: they come first, and the flows
// between two ranks are spread over them. A rail that peers cannot reach costs a second when a group is formed; its
// flows then use another address.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/tcp/meeting/tcp_address.hpp"

namespace syntony {

/// One address of one interface.
struct NetworkInterface {
  std::string name;
  TcpAddress address;  // port 0
  bool up = true;
  bool bridge = false;
  std::string kind{};  // NOLINT(readability-redundant-member-init): driver and speed, as far as they are known
};

struct InterfaceChoice {
  std::vector<NetworkInterface> network;   // for ranks on other machines, best first
  std::size_t rails = 0;                   // number of equals, from the first: one address per interface
  std::vector<NetworkInterface> loopback;  // for ranks on this machine: at most one
  std::vector<std::string> left_out;       // "docker0 172.17.0.1: excluded", for people
};

/// This machine's interfaces. Throws Error(system).
[[nodiscard]] std::vector<NetworkInterface> network_interfaces();
/// Applies the grammar above. Throws Error(invalid) for an empty item, or if nothing remains.
[[nodiscard]] InterfaceChoice choose_interfaces(const std::vector<NetworkInterface>& interfaces,
                                                std::string_view filter);
/// How many connections the interface needs to reach its rate. Clouds limit each connection: Amazon to 5 or 10 Gbit/s
/// (EC2 user guide, "network bandwidth"), Google to less than the card's rate as well; NCCL opens 16 and 4 there.
[[nodiscard]] std::size_t streams_of(const NetworkInterface& interface);
/// The name of the interface that has this address (its port does not matter); "no interface" if none has.
[[nodiscard]] std::string interface_of(const TcpAddress& address);

/// Equal on two ranks if and only if they can meet on the loopback interface: a hash of boot id and network namespace.
[[nodiscard]] std::string machine_identity();

}  // namespace syntony
