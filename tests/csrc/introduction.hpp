// Ranks that believe to be on hosts of their own, in one process.
#pragma once

#include <string>

#include "core/process/host.hpp"
#include "require.hpp"

/// What a rank says when a group introduces itself, as said from a host named `name`. Its fields are lengths, ':',
/// bytes; the key of this host becomes that of the other one.
inline std::string on_host(const std::string& name, std::string blob) {
  const auto field = [](const std::string& text) { return std::to_string(text.size()) + ":" + text; };
  const std::string key = syntony::host_key();
  const std::size_t place = blob.find(field(key));
  require(place != std::string::npos, "an introduction has no key of a host");
  return blob.replace(place, field(key).size(), field(key + " " + name));
}
