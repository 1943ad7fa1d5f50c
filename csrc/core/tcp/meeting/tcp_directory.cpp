#include "core/tcp/meeting/tcp_directory.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <utility>

namespace syntony {
namespace {

// In forms; words have none of them (without_marks()).
constexpr char kHere = '\r';  // first: on this machine
constexpr char kPort = '\n';  // behind a colon: there is a port
constexpr char kWrong = '?';  // in place of what no address has

/// Removes the first word, and the space behind it.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

/// The number behind the last colon; empty if the word does not end so.
std::optional<std::uint16_t> port_of(std::string_view word) {
  std::uint16_t port = 0;
  const char* const begin = word.data() + word.rfind(':') + 1;  // of the word, if there is no colon
  const char* const end = word.data() + word.size();
  const auto [stop, failure] = std::from_chars(begin, end, port);
  const bool whole = begin != word.data() && failure == std::errc() && stop == end;
  return whole ? std::optional(port) : std::nullopt;
}

/// A word that no address can be stays one.
std::string without_marks(std::string_view word) {
  std::string result(word.empty() ? std::string_view(&kWrong, 1) : word);
  std::ranges::replace_if(
      result, [](char character) { return character == '\0' || character == kPort || character == kHere; }, kWrong);
  return result;
}

bool loopback(std::string_view word) {
  if (!word.starts_with("127.") && !word.starts_with('[')) return false;
  const std::optional<TcpAddress> address = TcpAddress::parse(word);
  return address && address->loopback();
}

}  // namespace

TcpDirectory::TcpDirectory(std::span<const std::string> published, std::span<const std::uint32_t> others,
                           std::string machine)
    : machine_(std::move(machine)), forms_(1, '\0'), entries_(published.size()) {
  std::unordered_map<std::string, std::uint32_t> known;
  std::string form;
  for (const std::uint32_t rank : others) {
    std::string_view text = published[rank];
    const bool here =
        text.starts_with(TcpEndpoints::kMachine) && take_word(text).substr(TcpEndpoints::kMachine.size()) == machine_;
    entries_[rank].ports = static_cast<std::uint32_t>(ports_.size());
    form.assign(here ? 1 : 0, kHere);
    while (!text.empty()) {
      const std::string_view word = take_word(text);
      const std::optional<std::uint16_t> port = port_of(word);
      if (!here && loopback(word)) continue;
      if (port) ports_.push_back(*port);
      form += without_marks(port ? word.substr(0, word.rfind(':') + 1) : word);
      form.append(port ? 1 : 0, kPort).append(text.empty() ? 0 : 1, ' ');
    }
    const auto [place, fresh] = known.try_emplace(form, static_cast<std::uint32_t>(forms_.size()));
    if (fresh) forms_.append(form).push_back('\0');
    entries_[rank].form = place->second;
  }
  forms_.shrink_to_fit();
  ports_.shrink_to_fit();
}

TcpEndpoints TcpDirectory::of(std::uint32_t rank) const {
  std::string_view form = forms_.c_str() + entries_[rank].form;
  std::size_t port = entries_[rank].ports;
  const bool here = form.starts_with(kHere);
  if (here) form.remove_prefix(1);
  std::string text;
  while (!form.empty()) {
    const std::string_view word = take_word(form);
    if (word.ends_with(kPort)) {
      text.append(word.substr(0, word.size() - 1)).append(std::to_string(ports_[port++]));
    } else {
      text += word;
    }
    if (!form.empty()) text += ' ';
  }
  TcpEndpoints theirs = TcpEndpoints::parse(text);
  theirs.machine = here ? machine_ : "";
  return theirs;
}

}  // namespace syntony
