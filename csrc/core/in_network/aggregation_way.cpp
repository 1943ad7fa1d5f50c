#include "core/in_network/aggregation_way.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "core/error.hpp"
#include "core/in_network/aggregation_ways.hpp"
#include "core/in_network/aggregation_wire.hpp"

namespace syntony {
namespace {

[[noreturn]] void refuse(const std::string& sentence) { throw Error(Error::Kind::invalid, sentence); }

std::uint32_t number_in(std::string_view text, const std::string& whole) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    refuse("'" + whole + "' is not an address like 10.0.0.4:4242");
  }
  return value;
}

TcpAddress address_in(const std::string& text) {
  const std::optional<TcpAddress> address = TcpAddress::parse(text);
  if (!address) refuse("'" + text + "' is not an address like 10.0.0.4:4242");
  return *address;
}

/// How many of the ways end in `end`, in whole words.
std::uint32_t ending_in(const std::vector<std::string>& ways, const std::string& end) {
  return static_cast<std::uint32_t>(std::ranges::count_if(ways, [&end](const std::string& way) {
    return way == end || (way.ends_with(end) && way[way.size() - end.size() - 1] == ',');
  }));
}

}  // namespace

std::vector<AggregationWays> AggregationWays::trees() const {
  std::vector<AggregationWays> found;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    std::size_t tree = 0;
    std::size_t begin = 0;
    do {
      const std::size_t end = std::min(by_rank[rank].find(';', begin), by_rank[rank].size());
      if (rank == 0) found.emplace_back().secret = secret;
      if (tree < found.size()) found[tree].by_rank.push_back(by_rank[rank].substr(begin, end - begin));
      ++tree;
      begin = end + 1;
    } while (begin <= by_rank[rank].size());
    if (tree != found.size()) {
      refuse("rank 0 says " + std::to_string(found.size()) + " ways to aggregators, rank " + std::to_string(rank) +
             " says " + std::to_string(tree) + " (SYNTONY_AGGREGATOR has one for each tree, with semicolons between)");
    }
  }
  return found;
}

AggregationWay::AggregationWay(const std::vector<std::string>& ways, std::uint32_t rank) {
  std::string rest = ways[rank];
  std::uint32_t before = 0;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string word = rest.substr(0, comma);
    const std::uint32_t count = ending_in(ways, rest);
    if (under == 0) {
      address = address_in(word);
      under = count;
    } else {
      (void)address_in(word);
      above += (above.empty() ? "" : ",") + word + " " + std::to_string(count);
    }
    before = count;
    if (comma == std::string::npos) break;
    rest.erase(0, comma + 1);
  }
  if (before != ways.size()) {
    refuse("the ranks' ways to aggregators do not end in one root: " + std::to_string(before) + " of " +
           std::to_string(ways.size()) + " end in " + rest + " (SYNTONY_AGGREGATOR is the way of each rank, up to it)");
  }
  if (above.size() > kLongestWay) refuse("a way of so many aggregators is too long");
}

AggregationWay::AggregationWay(const std::string& text) {
  const std::size_t comma = text.find(',');
  const std::string word = text.substr(0, comma);
  const std::size_t space = word.find(' ');
  if (space == std::string::npos) refuse("'" + text + "' is not a way to an aggregator");
  address = address_in(word.substr(0, space));
  under = number_in(std::string_view(word).substr(space + 1), text);
  if (comma != std::string::npos) above = text.substr(comma + 1);
}

}  // namespace syntony
