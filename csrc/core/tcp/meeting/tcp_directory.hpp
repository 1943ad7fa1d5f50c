// Where the ranks of a group listen, as they have published it (TcpEndpoints), kept in few bytes for each rank:
//
//     published by rank 3   machine=A rails=1 10.0.0.4:4242 127.0.0.1:4245
//     published by rank 4   machine=A rails=1 10.0.0.4:5151 127.0.0.1:5152
//
//     forms   "rails=1 10.0.0.4:_"                         each once: the ranks of a host differ in their ports only
//     ports   4242 5151
//
// Of machines other than this one it is enough to know that they are others, and no loopback address leads there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tcp/meeting/tcp_listener.hpp"

namespace syntony {

class TcpDirectory {
 public:
  /// `published[r]` is what rank r of `others` has published; other entries are not read. `machine` is this one.
  TcpDirectory(std::span<const std::string> published, std::span<const std::uint32_t> others, std::string machine);

  /// The machine's name is empty if it is not this one. Throws Error(invalid) naming the word that is wrong.
  [[nodiscard]] TcpEndpoints of(std::uint32_t rank) const;

 private:
  struct Entry {
    std::uint32_t form = 0;   // where it begins in forms_
    std::uint32_t ports = 0;  // the first in ports_; the form says how many
  };

  std::string machine_;
  std::string forms_;  // each ends with a zero; those of ranks on this machine begin with a mark
  std::vector<std::uint16_t> ports_;
  std::vector<Entry> entries_;  // by rank
};

}  // namespace syntony
