// Ranks of one process that believe they are on different hosts.
#pragma once

#include <string>

#include "core/process/host.hpp"
#include "require.hpp"

/// A rank's introduction, as if sent from a host named `name`. Its fields are lengths, ':', bytes; this host's key is
/// replaced by the other one's.
inline std::string on_host(const std::string& name, std::string blob) {
  const auto field = [](const std::string& text) { return std::to_string(text.size()) + ":" + text; };
  const std::string key = syntony::host_key();
  const std::size_t place = blob.find(field(key));
  require(place != std::string::npos, "an introduction has no key of a host");
  return blob.replace(place, field(key).size(), field(key + " " + name));
}
