// What an instruction of a Program does, and the one table of what each opcode touches. Everything reads it, Python
// through `_core.OPCODES`.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace syntony {

enum class Opcode : std::uint32_t {
  nop,                    // carries dependencies only
  copy,                   // dst = src
  reduce,                 // dst = src + operands[0] + operands[1] + ..   n-ary, in this order, rounded once
  send,                   // src -> message to send_peer
  recv,                   // dst = message from recv_peer
  recv_reduce,            // dst = message + src
  recv_copy_send,         // dst = message; message -> send_peer
  recv_reduce_send,       // message + src -> send_peer; nothing is stored
  recv_reduce_copy_send,  // dst = message + src; dst -> send_peer
  peer_read,              // dst = send_peer's slot `src`            one-sided: the peer does nothing; ordered
  peer_write,             // send_peer's slot `dst` = src            only by signal and wait
  signal,                 // an empty message to send_peer
  wait,                   // the empty message from recv_peer
};

struct OpcodeFacts {
  std::string_view name;
  bool reads = false, writes = false;    // src, dst
  bool receives = false, sends = false;  // a message, which may be empty
  bool one_sided = false;                // dst (peer_write) or src (peer_read) belongs to send_peer
};

inline constexpr std::array<OpcodeFacts, 13> kOpcodes{{
    {.name = "nop"},
    {.name = "copy", .reads = true, .writes = true},
    {.name = "reduce", .reads = true, .writes = true},
    {.name = "send", .reads = true, .sends = true},
    {.name = "recv", .writes = true, .receives = true},
    {.name = "recv_reduce", .reads = true, .writes = true, .receives = true},
    {.name = "recv_copy_send", .writes = true, .receives = true, .sends = true},
    {.name = "recv_reduce_send", .reads = true, .receives = true, .sends = true},
    {.name = "recv_reduce_copy_send", .reads = true, .writes = true, .receives = true, .sends = true},
    {.name = "peer_read", .reads = true, .writes = true, .one_sided = true},
    {.name = "peer_write", .reads = true, .writes = true, .one_sided = true},
    {.name = "signal", .sends = true},
    {.name = "wait", .receives = true},
}};

[[nodiscard]] constexpr const OpcodeFacts& facts_of(Opcode opcode) {
  return kOpcodes[static_cast<std::size_t>(opcode)];
}
[[nodiscard]] constexpr std::string_view name_of(Opcode opcode) { return facts_of(opcode).name; }
[[nodiscard]] constexpr bool sends(Opcode opcode) { return facts_of(opcode).sends; }        // signal included
[[nodiscard]] constexpr bool receives(Opcode opcode) { return facts_of(opcode).receives; }  // wait included
[[nodiscard]] constexpr bool one_sided(Opcode opcode) { return facts_of(opcode).one_sided; }
/// Puts a non-empty message into a FIFO.
[[nodiscard]] constexpr bool sends_data(Opcode opcode) { return sends(opcode) && opcode != Opcode::signal; }

}  // namespace syntony
