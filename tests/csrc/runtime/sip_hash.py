"""SipHash-2-4 with 128 bits of output, written from its description: what csrc/core/sip_hash.hpp computes."""

from __future__ import annotations

import struct

_MASK = (1 << 64) - 1


def sip_hash(key: bytes, message: bytes) -> bytes:
    first, second = struct.unpack("<QQ", key)
    v = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D ^ 0xEE,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]

    def turn(value: int, bits: int) -> int:
        return (value << bits | value >> (64 - bits)) & _MASK

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = (v[0] + v[1]) & _MASK
            v[2] = (v[2] + v[3]) & _MASK
            v[1] = turn(v[1], 13) ^ v[0]
            v[3] = turn(v[3], 16) ^ v[2]
            v[0] = turn(v[0], 32)
            v[2] = (v[2] + v[1]) & _MASK
            v[0] = (v[0] + v[3]) & _MASK
            v[1] = turn(v[1], 17) ^ v[2]
            v[3] = turn(v[3], 21) ^ v[0]
            v[2] = turn(v[2], 32)

    padded = message + bytes(-(len(message) + 1) % 8) + bytes([len(message) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return struct.pack("<QQ", low, v[0] ^ v[1] ^ v[2] ^ v[3])
