// What ranks publish of where they listen, a line each, as a directory keeps it: what it tells of a rank must be what
// the rank's own line says, whatever the other lines are.
#include <algorithm>
#include <numeric>
#include <optional>

#include "core/error.hpp"
#include "core/tcp/meeting/tcp_directory.hpp"
#include "fuzz/target.hpp"

namespace syntony::fuzz {
namespace {

constexpr std::string_view kMachine = "a";

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts(1);
  for (const char character : text) character == by ? (void)parts.emplace_back() : parts.back().push_back(character);
  return parts;
}

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<Bytes> directory_seeds() {
  return {
      bytes_of("machine=a rails=1 10.0.0.1:1001 [fd00::1]:1002 127.0.0.1:1003\n"
               "machine=a rails=1 10.0.0.1:2001 [fd00::1]:2002 127.0.0.1:2003\n"
               "machine=b rails=2 streams=8 10.0.0.2:65535 10.0.0.3:1 127.0.0.1:3003 [::1]:3004"),
      bytes_of("10.0.0.7:7001\n\nmachine=unknown rails=1 192.168.0.1:80\nmachine=a rails=0 127.0.0.1:4001 [::1]:9")};
}

/// Nothing if it is refused.
template <typename Reading>
std::optional<std::string> told(const Reading& reading) {
  try {
    return reading().text();
  } catch (const Error& error) {
    require(error.kind() == Error::Kind::invalid, "it is invalid, nothing else");
    return std::nullopt;
  }
}

/// What the line says, without what a directory does not keep: names of other machines, and their loopback addresses.
TcpEndpoints kept(std::string_view line) {
  TcpEndpoints all = TcpEndpoints::parse(line);
  const bool here = split(line, ' ').front() == "machine=" + std::string(kMachine);
  all.machine = here ? kMachine : "";
  if (!here) std::erase_if(all.addresses, [](const TcpAddress& address) { return address.loopback(); });
  return all;
}

bool take_lines(std::span<const std::byte> input) {
  const std::vector<std::string> lines = split({reinterpret_cast<const char*>(input.data()), input.size()}, '\n');
  std::vector<std::uint32_t> others(lines.size());
  std::iota(others.begin(), others.end(), 0U);
  const TcpDirectory directory(lines, others, std::string(kMachine));
  bool whole = true;
  for (const std::uint32_t rank : others) {
    const std::optional<std::string> expected = told([&] { return kept(lines[rank]); });
    const std::optional<std::string> found = told([&] { return directory.of(rank); });
    if (found != expected) fault(found.value_or("refused") + " is not " + expected.value_or("refused"));
    whole &= expected.has_value();
  }
  return whole;
}

void end_of_lines() {}

}  // namespace

const Target kDirectory{"directory", directory_seeds, take_lines, end_of_lines};

}  // namespace syntony::fuzz
