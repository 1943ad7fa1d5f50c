#include "core/group/agreement.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "core/error.hpp"

namespace syntony {
namespace {

// What a rank contributes: '=' and its content, or '!' and why it has none: kind, number of ranks it blames, those
// ranks, a sentence.
constexpr char kContent = '=';
constexpr char kFault = '!';

std::string fault_text(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  std::string text = kFault + std::to_string(static_cast<int>(known != nullptr ? known->kind() : Error::Kind::system));
  const std::vector<int> blamed = known != nullptr ? known->ranks() : std::vector<int>{};
  text += " " + std::to_string(blamed.size());
  for (const int rank : blamed) text += " " + std::to_string(rank);
  // A Python exception begins with a traceback; its last line says what it is.
  std::string_view sentence = error.what();
  while (sentence.ends_with('\n')) sentence.remove_suffix(1);
  return text + " " + std::string(sentence.substr(sentence.rfind('\n') + 1));
}

std::optional<Error> fault_in(const std::string& blob, std::uint32_t rank) {
  if (!blob.empty() && blob.front() == kContent) return std::nullopt;
  std::istringstream words(blob.empty() ? blob : blob.substr(1));
  int kind = 0;
  std::size_t count = 0;
  words >> kind >> count;
  std::vector<int> blamed;
  for (int one = 0; blamed.size() < count && words >> one;) blamed.push_back(one);
  std::string sentence;
  std::getline(words >> std::ws, sentence);
  if (blob.empty() || blob.front() != kFault || !words || kind < 0 || kind > static_cast<int>(Error::Kind::system)) {
    return Error(Error::Kind::system,
                 "it introduced itself in a form that is not ours (is it another version of Syntony?)",
                 {static_cast<int>(rank)});
  }
  return Error(static_cast<Error::Kind>(kind), sentence, blamed);
}

/// The first rank that failed; or the rank it blames, if that one has failed as well, and so on.
std::size_t cause_of(const std::vector<std::optional<Error>>& faults) {
  auto at = static_cast<std::size_t>(std::ranges::find_if(faults, [](const auto& one) { return one.has_value(); }) -
                                     faults.begin());
  std::set<std::size_t> asked;
  while (asked.insert(at).second) {
    const auto blamed = std::ranges::find_if(faults[at]->ranks(), [&](int rank) {
      const auto other = static_cast<std::size_t>(rank);
      return rank >= 0 && other < faults.size() && faults[other] && !asked.contains(other);
    });
    if (blamed == faults[at]->ranks().end()) break;
    at = static_cast<std::size_t>(*blamed);
  }
  return at;
}

}  // namespace

std::vector<std::string> agree(Bootstrap& bootstrap, const std::string& name, const std::function<std::string()>& bring,
                               const std::function<std::string(std::uint32_t)>& name_of_rank) {
  std::string mine;
  std::exception_ptr own;
  try {
    mine = kContent + bring();
  } catch (const std::exception& error) {
    mine = fault_text(error);
    own = std::current_exception();
  }
  std::vector<std::string> blobs = bootstrap.all_gather(name, mine);
  if (std::ranges::any_of(blobs, [](const std::string& blob) { return !blob.starts_with(kContent); })) {
    std::vector<std::optional<Error>> faults;
    for (const std::string& blob : blobs) faults.push_back(fault_in(blob, static_cast<std::uint32_t>(faults.size())));
    const std::size_t cause = cause_of(faults);
    if (own && cause == bootstrap.rank()) std::rethrow_exception(own);
    std::vector<int> ranks = faults[cause]->ranks();
    if (ranks.empty()) ranks.push_back(static_cast<int>(cause));
    throw Error(faults[cause]->kind(),
                name_of_rank(static_cast<std::uint32_t>(cause)) + " could not form the group: " + faults[cause]->what(),
                ranks);
  }
  for (std::string& blob : blobs) blob.erase(0, 1);
  return blobs;
}

}  // namespace syntony
