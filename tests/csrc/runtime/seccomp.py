"""Systems that refuse a system call: filters of this process, for good."""

from __future__ import annotations

import ctypes
import platform
import struct

KILL = 0x80000000
ERRNO = 0x00050000  # + the number
_ALLOW = 0x7FFF0000
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBERS = {
    "memfd_create": {"x86_64": 319, "aarch64": 279},
    "pidfd_open": {"x86_64": 434, "aarch64": 434},
    "prctl": {"x86_64": 157, "aarch64": 167},
    "process_vm_readv": {"x86_64": 310, "aarch64": 270},
    "recvmsg": {"x86_64": 47, "aarch64": 212},
    "sendmsg": {"x86_64": 46, "aarch64": 211},
}


def refuse(call: str, answer: int, first_argument: int | None = None) -> None:
    """From here on `call` (with that first argument, if one is given) ends with `answer`."""
    skipped = 3 if first_argument is not None else 1
    program = [(_LOAD, 0, 0, 0), (_EQUAL, 0, skipped, _NUMBERS[call][platform.machine()])]
    if first_argument is not None:
        program += [(_LOAD, 0, 0, 16), (_EQUAL, 0, 1, first_argument)]
    program += [(_RETURN, 0, 0, answer), (_RETURN, 0, 0, _ALLOW)]
    lines = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in program))
    described = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(lines)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, described, 0, 0) == 0  # PR_SET_SECCOMP
