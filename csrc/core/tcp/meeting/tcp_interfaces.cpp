#include "core/tcp/meeting/tcp_interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <system_error>

#include "core/sip_hash.hpp"
#include "core/tcp/meeting/tcp_socket.hpp"

namespace syntony {
namespace {

struct Rule {
  std::string_view name;
  bool prefix = false;
  bool exclude = false;

  [[nodiscard]] bool matches(std::string_view interface) const {
    return prefix ? interface.starts_with(name) : interface == name;
  }
};

std::vector<Rule> parse_rules(std::string_view filter) {
  std::vector<Rule> rules;
  if (filter.empty()) return rules;
  const bool as_nccl = filter.starts_with('^');
  for (std::size_t begin = 0; begin <= filter.size();) {
    const std::size_t end = std::min(filter.find(',', begin), filter.size());
    Rule rule{filter.substr(begin, end - begin)};
    rule.exclude = rule.name.starts_with('^');
    if (rule.exclude) rule.name.remove_prefix(1);
    rule.prefix = rule.name.ends_with('*');
    if (rule.prefix) rule.name.remove_suffix(1);
    if (as_nccl) rule.exclude = rule.prefix = true;
    if (rule.name.starts_with('=')) {
      rule.name.remove_prefix(1);
      rule.prefix = false;
    }
    if (rule.name.empty() && (as_nccl || !rule.prefix)) {
      throw Error(Error::Kind::invalid, "SYNTONY_SOCKET_IFNAME=" + std::string(filter) +
                                            " has an empty item; write names like eth0,ib*,^docker0");
    }
    rules.push_back(rule);
    begin = end + 1;
  }
  return rules;
}

std::string host_of(const TcpAddress& address) {
  const std::string text = address.text();
  return text.substr(0, text.rfind(':'));
}

/// What equal network cards have in common: "mlx5_core 100000". Virtual devices have no driver, some have no speed.
std::string kind_of(const std::string& interface) {
  const std::filesystem::path device = "/sys/class/net/" + interface;
  std::error_code absent;
  const std::filesystem::path driver = std::filesystem::read_symlink(device / "device/driver", absent);
  std::string speed;
  std::ifstream(device / "speed") >> speed;
  return driver.filename().string() + " " + speed;
}

/// Moves the equals of the best address to the front, one per interface, and returns their number.
std::size_t gather_rails(std::vector<NetworkInterface>& network) {
  if (network.empty()) return 0;
  const NetworkInterface best = network.front();
  std::vector<std::string> names;
  const auto rest = std::ranges::stable_partition(network, [&](const NetworkInterface& interface) {
    const bool equal = interface.kind == best.kind && interface.bridge == best.bridge &&
                       interface.address.family() == best.address.family() &&
                       std::ranges::find(names, interface.name) == names.end();
    if (equal) names.push_back(interface.name);
    return equal;
  });
  return static_cast<std::size_t>(rest.begin() - network.begin());
}

/// An interface's rank in the order of preference, or why it is left out.
struct Verdict {
  std::size_t place = 0;
  const char* why_not = nullptr;
};

Verdict judge(const NetworkInterface& interface, const std::vector<Rule>& rules) {
  if (!interface.up) return {0, "down"};
  if (interface.address.link_local()) return {0, "link-local"};
  bool any_use = false;
  std::optional<std::size_t> used;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const bool matches = rules[i].matches(interface.name);
    if (rules[i].exclude && matches) return {0, "excluded"};
    if (rules[i].exclude) continue;
    any_use = true;
    if (matches && !used) used = i;
  }
  if (used) return {*used, nullptr};
  // Ranks of this machine meet on loopback, whatever network the list names.
  if (any_use && !interface.address.loopback()) return {0, "not in the list"};
  return {interface.bridge ? rules.size() + 1 : rules.size(), nullptr};
}

}  // namespace

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) throw system_error("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, &freeifaddrs);
  std::vector<NetworkInterface> result;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    const std::optional<TcpAddress> address = TcpAddress::from(entry->ifa_addr);
    if (!address) continue;
    const std::string name = entry->ifa_name;
    const bool up = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_RUNNING) != 0;
    const bool bridge = access(("/sys/class/net/" + name + "/bridge").c_str(), F_OK) == 0;
    result.push_back({name, *address, up, bridge, kind_of(name)});
  }
  return result;
}

std::string interface_of(const TcpAddress& address) {
  for (const NetworkInterface& interface : network_interfaces()) {
    if (interface.address.same_host(address)) return interface.name;
  }
  return "no interface";
}

InterfaceChoice choose_interfaces(const std::vector<NetworkInterface>& interfaces, std::string_view filter) {
  const std::vector<Rule> rules = parse_rules(filter);
  InterfaceChoice choice;
  std::vector<std::pair<std::size_t, NetworkInterface>> kept;
  for (const NetworkInterface& interface : interfaces) {
    const Verdict verdict = judge(interface, rules);
    if (verdict.why_not != nullptr) {
      choice.left_out.push_back(interface.name + " " + host_of(interface.address) + ": " + verdict.why_not);
    } else if (!interface.address.loopback()) {
      kept.emplace_back(verdict.place, interface);
    } else if (choice.loopback.empty()) {
      choice.loopback.push_back(interface);
    }
  }
  std::ranges::stable_sort(kept, {}, &std::pair<std::size_t, NetworkInterface>::first);
  for (auto& [place, interface] : kept) choice.network.push_back(std::move(interface));
  choice.rails = gather_rails(choice.network);
  if (choice.network.empty() && choice.loopback.empty()) {
    std::string sentence = filter.empty() ? "no network interface is up"
                                          : "SYNTONY_SOCKET_IFNAME=" + std::string(filter) + " leaves no interface";
    for (const std::string& reason : choice.left_out) sentence += "; " + reason;
    throw Error(Error::Kind::invalid, sentence);
  }
  return choice;
}

std::size_t streams_of(const NetworkInterface& interface) {
  if (interface.kind.starts_with("ena ")) return 8;  // Amazon's driver
  if (interface.kind.starts_with("gve ")) return 4;  // Google's
  return 1;
}

std::string machine_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network{};
  if (boot.empty() || stat("/proc/self/ns/net", &network) != 0) return "unknown";
  const SipHash hash = sip_hash({}, boot + "/" + std::to_string(network.st_ino));
  return std::to_string(hash[0]);
}

}  // namespace syntony
