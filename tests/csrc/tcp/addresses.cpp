// Addresses, interfaces, options and what a listener publishes.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/tcp/meeting/tcp_directory.hpp"
#include "core/tcp/meeting/tcp_interfaces.hpp"
#include "ranks.hpp"

namespace tests {
namespace {

using namespace syntony;

void addresses(std::uint64_t) {
  for (const std::string text : {"10.0.0.4:4242", "0.0.0.0:0", "255.255.255.255:65535", "[::1]:1", "[fd00::2]:4243"}) {
    const auto address = TcpAddress::parse(text);
    require(address.has_value(), text + " is an address");
    require(address->text() == text, text + " comes back as " + address->text());
  }
  for (const std::string text : {"", ":", "10.0.0.4", "10.0.0.4:", "10.0.0.4:x", "10.0.0.4:65536", "10.0.0:1", "host:1",
                                 "[::1]", "::1:1", "[::1:1", "10.0.0.4:-1", "[]:1", "10.0.0.4:1 "}) {
    require(!TcpAddress::parse(text).has_value(), "'" + text + "' is no address");
  }
  require(TcpAddress::parse("127.3.2.1:1")->loopback() && TcpAddress::parse("[::1]:1")->loopback(), "loopback");
  require(!TcpAddress::parse("128.0.0.1:1")->loopback() && !TcpAddress::parse("[::2]:1")->loopback(), "no loopback");
  require(TcpAddress::parse("169.254.9.9:1")->link_local() && TcpAddress::parse("[fe80::1]:1")->link_local(),
          "link-local");
  require(!TcpAddress::parse("[fd00::1]:1")->link_local(), "not link-local");
}

NetworkInterface interface(std::string name, const char* host, bool up = true, bool bridge = false) {
  return {std::move(name), *TcpAddress::parse(std::string(host) + ":0"), up, bridge};
}

std::string chosen(std::string_view filter) {
  const std::vector<NetworkInterface> all{
      interface("lo", "127.0.0.1"),  interface("lo", "[::1]"),       interface("docker0", "172.17.0.1", true, true),
      interface("eth0", "10.0.0.4"), interface("eth0", "[fe80::4]"), interface("eth0", "[fd00::4]"),
      interface("eth1", "10.1.0.4"), interface("ib0", "10.2.0.4"),   interface("ib1", "10.3.0.4", false)};
  const InterfaceChoice choice = choose_interfaces(all, filter);
  require(choice.loopback.size() <= 1, "one loopback address is enough");
  require(choice.network.size() + choice.loopback.size() + choice.left_out.size() + (choice.loopback.empty() ? 0 : 1) ==
              all.size(),
          "every address is chosen or has a reason");
  std::string names;
  for (const auto& list : {choice.network, choice.loopback}) {
    for (const NetworkInterface& one : list) names += (names.empty() ? "" : " ") + one.name;
  }
  return names;
}

void interfaces(std::uint64_t) {
  const auto expect = [](std::string_view filter, std::string_view names) {
    require(chosen(filter) == names, std::string(filter) + " chooses " + chosen(filter));
  };
  expect("", "eth0 eth1 ib0 eth0 docker0 lo");  // rails, then the other family; bridges late; down, link-local never
  expect("eth0", "eth0 eth0 lo");
  expect("eth0,^lo", "eth0 eth0");
  expect("ib*,eth1", "ib0 eth1 lo");  // the order of the list
  expect("eth1,ib0", "eth1 ib0 lo");
  expect("^docker0,^ib*", "eth0 eth1 eth0 lo");
  expect("^lo,docker", "eth0 eth1 ib0 eth0");  // as in NCCL: all are excluded, and names are prefixes
  expect("^=lo,=docker,eth", "ib0 docker0");
  expect("*,^eth*", "docker0 ib0 lo");
  expect("lo", "lo");
  require_in("leaves no interface", error_of([] { (void)chosen("wlan0,^lo"); }).what());
  require_in("docker0 172.17.0.1: not in the list", error_of([] { (void)chosen("wlan0,^lo"); }).what());
  require_in("ib1 10.3.0.4: down", error_of([] { (void)chosen("ib1,^lo"); }).what());
  for (const std::string filter : {",", "eth0,", "^", "^lo,", "eth0,,eth1"}) {
    const Error error = error_of([&] { (void)chosen(filter); });
    require(error.kind() == Error::Kind::invalid, "invalid");
    require_in("SYNTONY_SOCKET_IFNAME=" + filter, error.what());
  }
}

/// Equal cards are used together; those that differ in speed, driver or family, and bridges, only if others fail.
void rails(std::uint64_t) {
  const auto card = [](std::string name, const char* host, std::string kind) {
    NetworkInterface made = interface(std::move(name), host);
    made.kind = std::move(kind);
    return made;
  };
  const std::vector<NetworkInterface> all{
      card("eth0", "10.0.0.4", "igb 1000"),    card("ib0", "10.2.0.4", "mlx5 400000"),
      card("ib1", "10.3.0.4", "mlx5 400000"),  card("ib1", "10.3.0.5", "mlx5 400000"),
      card("ib1", "[fd00::5]", "mlx5 400000"), card("ib2", "10.4.0.4", "mlx5 200000")};
  const auto expect = [&all](std::string_view filter, std::size_t rails, std::string_view hosts) {
    const InterfaceChoice choice = choose_interfaces(all, filter);
    std::string found;
    for (const NetworkInterface& one : choice.network) found += one.address.text() + " ";
    require(choice.rails == rails, std::string(filter) + " has " + std::to_string(choice.rails) + " rails");
    require(found == hosts, std::string(filter) + " gives " + found);
  };
  expect("", 1, "10.0.0.4:0 10.2.0.4:0 10.3.0.4:0 10.3.0.5:0 [fd00::5]:0 10.4.0.4:0 ");
  expect("ib*", 2, "10.2.0.4:0 10.3.0.4:0 10.3.0.5:0 [fd00::5]:0 10.4.0.4:0 ");
  expect("ib2,ib0", 1, "10.4.0.4:0 10.2.0.4:0 ");

  TcpEndpoints here = TcpEndpoints::parse("machine=a rails=2 10.0.0.1:1 10.1.0.1:1 [fd00::1]:1 127.0.0.1:1");
  TcpEndpoints there = TcpEndpoints::parse("machine=b rails=3 10.0.0.2:1 10.1.0.2:1 10.2.0.2:1");
  require(TcpEndpoints::parse(here.text()).rails == 2, "rails are published");
  const auto first = [&](std::size_t flow) { return here.reachable_from(there, flow).front().text(); };
  require(first(0) == "10.0.0.1:1" && first(1) == "10.1.0.1:1" && first(2) == "10.0.0.1:1", "flows take turns");
  require(here.reachable_from(there, 1).size() == 3, "every flow may fall back on any address");
  require(here.flows_with(there) == 3 && there.flows_with(here) == 3, "a flow for each rail, alike on both sides");
  there.rails = 1;
  require(here.flows_with(there) == 2, "as many as the larger number of rails");
  there.rails = 1000;
  require(here.flows_with(there) == 64, "within bounds");
  here.rails = there.rails = 1;
  require(here.flows_with(there) == 1, "one usually");
  there.streams = 8;
  require(here.flows_with(there) == 8 && there.flows_with(here) == 8, "as many as the card needs, alike on both sides");
  require(TcpEndpoints::parse(there.text()).streams == 8, "streams are published");
  require(streams_of({.name = "ens5", .address = {}, .kind = "ena 25000"}) == 8, "a cloud's card needs several");
  require(streams_of({.name = "eth0", .address = {}, .kind = "mlx5_core 100000"}) == 1, "a usual card needs one");
  there.rails = 1000;
  there.machine = "a";
  require(here.flows_with(there) == 1 && here.reachable_from(there, 1).front().loopback(), "loopback has no rails");
  require_in("'rails=x' is not a number", error_of([] { (void)TcpEndpoints::parse("machine=m rails=x"); }).what());
}

void options(std::uint64_t) {
  for (const char* name : {"SYNTONY_SOCKET_IFNAME", "SYNTONY_TCP_FLOWS", "SYNTONY_TCP_SNDBUF", "SYNTONY_TCP_RCVBUF"}) {
    unsetenv(name);
  }
  require(TcpOptions::from_environment().flows == 0, "as many flows as suit the pair");
  setenv("SYNTONY_TCP_FLOWS", "3", 1);
  setenv("SYNTONY_TCP_SNDBUF", "65536", 1);
  setenv("SYNTONY_SOCKET_IFNAME", "lo", 1);
  const TcpOptions set = TcpOptions::from_environment();
  require(set.flows == 3 && set.send_buffer == 65536 && set.receive_buffer == 0 && set.interfaces == "lo", "as set");
  for (const std::string wrong : {"0", "65", "two", "2 ", "-1", "99999999999999999999"}) {
    setenv("SYNTONY_TCP_FLOWS", wrong.c_str(), 1);
    const Error error = error_of([] { (void)TcpOptions::from_environment(); });
    require(error.kind() == Error::Kind::invalid, "invalid");
    require_in("SYNTONY_TCP_FLOWS=" + wrong + " is not a whole number from 1 to 64", error.what());
  }
}

void listener(std::uint64_t) {
  const TcpListener listener{TcpOptions{}};
  const TcpEndpoints& mine = listener.endpoints();
  require(listener.sockets().size() == mine.addresses.size(), "a socket for each address");
  require(std::ranges::any_of(mine.addresses, &TcpAddress::loopback), "loopback is among them");
  const TcpEndpoints back = TcpEndpoints::parse(listener.published());
  require(back.text() == mine.text() && back.machine == mine.machine, "what is published can be read");
  for (const TcpAddress& address : mine.addresses) knock(address);  // each of them listens

  TcpEndpoints far = mine;
  far.machine = "another";
  require(mine.reachable_from(mine).front().loopback(), "on one machine, loopback first");
  require(std::ranges::none_of(mine.reachable_from(far), &TcpAddress::loopback), "never from another machine");
  far.machine = "unknown";
  require(std::ranges::none_of(far.reachable_from(far), &TcpAddress::loopback), "unknown is never the same");
  require_in("'banana' is not an endpoint", error_of([] { (void)TcpEndpoints::parse("machine=m banana"); }).what());

  const TcpListener narrow{TcpOptions{.interfaces = "lo"}};
  require(narrow.endpoints().addresses.size() == 1, "only lo");
}

void directory(std::uint64_t) {
  const std::vector<std::string> published{"machine=a rails=1 10.0.0.1:1001 [fd00::1]:1002 127.0.0.1:1003",
                                           "machine=a rails=1 10.0.0.1:2001 127.0.0.1:2003",
                                           "machine=b rails=2 streams=8 10.0.0.2:65535 127.0.0.1:3003 [::1]:3004",
                                           "not read",
                                           "machine=a banana 10.0.0.1:4001",
                                           "machine=b 10.0.0.2:",
                                           "",
                                           "10.0.0.7:7001"};
  const std::vector<std::uint32_t> others{0, 1, 2, 4, 5, 6, 7};
  const TcpDirectory here(published, others, "a");
  for (const std::uint32_t rank : {0U, 1U}) require(here.of(rank).text() == published[rank], "as it was published");
  require(here.of(2).text() == "machine= rails=2 streams=8 10.0.0.2:65535", "no loopback address of another machine");
  require(here.of(6).addresses.empty() && here.of(3).addresses.empty(), "nothing was published or read");
  require(here.of(7).addresses.front().text() == "10.0.0.7:7001" && here.of(7).machine.empty(), "no machine");
  require_in("'banana' is not an endpoint", error_of([&] { (void)here.of(4); }).what());
  require_in("'10.0.0.2:' is not an endpoint", error_of([&] { (void)here.of(5); }).what());
}

constexpr std::array kAddressTests{Test{"addresses", addresses}, Test{"interfaces", interfaces},
                                   Test{"rails", rails},         Test{"options", options},
                                   Test{"listener", listener},   Test{"directory", directory}};

}  // namespace

std::span<const Test> address_tests() { return kAddressTests; }

}  // namespace tests
