"""Protocol buffers' wire format: a minimal strict reader and writer for Chakra's files.

    message  = field*             field = key value         key = number << 3 | type, a varint
    type 0     varint, 7 bits a byte, low ones first        type 2   length, then that many bytes
    type 1, 5  8 and 4 bytes, little endian                 (3 and 4, groups, are gone since proto3)

After the public specification ("Encoding", protobuf.dev). Readers skip fields they do not know.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

Value = int | bytes
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LONGEST = 10  # bytes of a varint of 64 bits


class WireError(ValueError):
    """Invalid bytes; names the position."""


def varint(value: int) -> bytes:
    """A whole number from 0 to 2**64 - 1."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """One field: whole numbers as varints, floats as doubles, text and bytes with their length."""
    if isinstance(value, float):
        return varint(number << 3 | _EIGHT) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value % 2**64)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | _BYTES) + varint(len(data)) + data


def packed(number: int, values: Iterator[int] | list[int]) -> bytes:
    """A repeated field of whole numbers; empty if there are none."""
    data = b"".join(map(varint, values))
    return field(number, data) if data else b""


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at byte `at`, and where it ends. Raises WireError."""
    value = 0
    for count in range(_LONGEST):
        if at + count >= len(data):
            raise WireError(f"it ends in the middle of a number, at byte {at + count}")
        byte = data[at + count]
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value % 2**64, at + count + 1
    raise WireError(f"a number at byte {at} is longer than 64 bits")


def read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    """The bytes behind the length at byte `at`, and where they end. Raises WireError."""
    length, begin = read_varint(data, at)
    if length > len(data) - begin:
        raise WireError(f"{length} bytes are announced at byte {at}, and {len(data) - begin} are left")
    return data[begin : begin + length], begin + length


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of every field: varints as whole numbers, everything else as bytes. Raises WireError."""
    at = 0
    while at < len(data):
        key, after = read_varint(data, at)
        number, kind = key >> 3, key & 7
        value: Value
        if kind == _VARINT:
            value, after = read_varint(data, after)
        elif kind == _BYTES:
            value, after = read_bytes(data, after)
        elif kind in (_EIGHT, _FOUR):
            width = 8 if kind == _EIGHT else 4
            value, after = data[after : after + width], after + width
            if after > len(data):
                raise WireError(f"it ends in the middle of a number, at byte {len(data)}")
        else:
            raise WireError(f"the field at byte {at} has type {kind}, which there is not")
        if number == 0:
            raise WireError(f"the field at byte {at} has number 0, which there is not")
        yield number, value
        at = after


def numbers(value: Value) -> list[int]:
    """The values of a repeated field of whole numbers, packed or single. Raises WireError."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        one, at = read_varint(value, at)
        found.append(one)
    return found
