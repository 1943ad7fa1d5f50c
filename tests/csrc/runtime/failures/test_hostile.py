"""A member of the group that talks nonsense: it knows the token, and the others are told its name.

The impostor is rank 1, written here from the description of the wire (csrc/core/tcp/tcp_wire.hpp), with plain sockets.
Strangers, who do not know the token, are the subject of tests/csrc/tcp.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from syntony import LocalBootstrap, _core
from tests.csrc.runtime.group import Group, failure_of
from tests.csrc.runtime.sip_hash import sip_hash

HELLO = struct.Struct("<IHH16s16sIIII")  # magic, version, flow, proof, nonce, group, from, to, flows
ACK = struct.Struct("<IHH16s16sII")  # magic, version, flow, proof, nonce, from, flows
VERSION, NONCE = 14, b"used once, or so"
PREFIX = struct.Struct("<4sIQII")  # kind, token, number, window, channel
HEADER = struct.Struct("<QIHHQQIIQ")  # token, group, channel, priority, sequence, fingerprint, slice, length, total
CONTROL = struct.Struct("<4sIQII")  # magic, kind, token, length, rank
STATUS, ABORT = 2, 3
CONTROL_FLOW, FLOWS = 0xFFFF, 1
FIRST, MESSAGES = 3, 6  # windows of the first operation that is neither urgent nor bulk, and of point-to-point


def fields(blob: bytes) -> list[bytes]:
    """Of an introduction: seven settings, host, name, process, two halves of a token, two Unix addresses, a proof, how
    many CPUs it may use and how many it is allowed, and which."""
    found = []
    blob = blob.removeprefix(b"=")
    while blob:
        length, _, rest = blob.partition(b":")
        found.append(rest[: int(length)])
        blob = rest[int(length) :]
    return found


SETTINGS = 8  # that ranks compare, at the front of an introduction: settings_of() in fabric.cpp


def own_introduction() -> list[bytes]:
    """As this build introduces itself."""

    class Alone:
        rank, size = 0, 1

        def all_gather(self, name: str, blob: bytes) -> list[bytes]:
            said.setdefault(name, blob)
            return [blob]

    said: dict[str, bytes] = {}
    _core.Communicator(_core.Process(), Alone(), 10.0, "alone")
    return fields(said["introduce"])


class Impostor:
    """Rank 1 of 2, which claims to be on another host."""

    def __init__(self, bootstrap: LocalBootstrap) -> None:
        settings = own_introduction()[:SETTINGS]
        sign = "{}.{}".format(*struct.unpack("<QQ", sip_hash(sip_hash(bytes(16), b":"), b"syntony rank 1.2")))
        whom = [b"elsewhere", b"impostor", b"4711", b"1", b"2", b"nowhere", b"silent", sign.encode()]
        own = [*settings, *whom, b"1", b"1", b"processors of its own"]
        introduction = b"=" + b"".join(b"%d:%s" % (len(field), field) for field in own)
        theirs = fields(bootstrap.all_gather("introduce", introduction)[0])
        # Rank 0's token, mixed with what the ranks know beside it: nothing here.
        self.token = sip_hash(sip_hash(bytes(16), b":"), b"%s.%s" % tuple(theirs[SETTINGS + 3 : SETTINGS + 5]))
        self.mark, self.prefix, self.group = struct.unpack("<QII", sip_hash(self.token, b"syntony frames"))
        endpoint = bootstrap.all_gather("tcp", b"=machine=elsewhere")[0].split()[-1].decode()
        host, port = endpoint.rsplit(":", 1)
        self.data = [self.dial(host, int(port), flow) for flow in range(FLOWS)]
        self.control = self.dial(host, int(port), CONTROL_FLOW)
        bootstrap.all_gather("connected", b"=")

    def dial(self, host: str, port: int, flow: int) -> socket.socket:
        connection = socket.create_connection((host, port), timeout=30)

        def hello(proof: bytes) -> bytes:
            return HELLO.pack(0x48535953, VERSION, flow, proof, NONCE, self.group, 1, 0, FLOWS)

        connection.sendall(hello(sip_hash(self.token, hello(bytes(16)) + bytes(16))))
        magic, version, same, proof, nonce, *rest = ACK.unpack(connection.recv(ACK.size, socket.MSG_WAITALL))
        unproven = ACK.pack(magic, version, same, bytes(16), nonce, *rest)
        assert sip_hash(self.token, unproven + NONCE) == proof, "rank 0 proves that it knows the token"
        connection.sendall(sip_hash(proof, b"syntony answer"))
        assert connection.recv(4, socket.MSG_WAITALL) == b"SYSW"
        return connection

    def frame(self, window: int, number: int, piece: int, payload: bytes, total: int, tag: int = 0) -> bytes:
        prefix = PREFIX.pack(b"SYSF", self.prefix, number, window, 0)
        return prefix + HEADER.pack(self.mark, self.group, 0, 0, 0, tag, piece, len(payload), total) + payload

    def message(self, kind: int, body: bytes = b"") -> bytes:
        return CONTROL.pack(b"SYSP", kind, self.mark, len(body), 1) + body

    def close(self) -> None:
        for connection in (*self.data, self.control):
            connection.close()


@pytest.fixture(autouse=True)
def no_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that is none does not answer when clocks are compared for the record."""
    monkeypatch.setenv("SYNTONY_TRACE_ENTRIES", "0")


def told(bad: Callable[[Impostor], None], call: Callable[[Group], Any]) -> tuple[str, tuple[int, ...], str]:
    """Kind, guilty ranks and sentence of what rank 0's `call` raises once rank 1 has done `bad`."""
    bootstraps = LocalBootstrap.group(2, timeout=30)
    ready = threading.Event()
    caught: list[tuple[str, tuple[int, ...], str, float]] = []

    def honest() -> None:
        group = Group(_core.Communicator(_core.Process(), bootstraps[0], 20.0, "test"))
        ready.wait(30)
        caught.append(failure_of(lambda: call(group)))
        again = failure_of(lambda: group.barrier())
        assert again[2] == caught[0][2]  # every later call repeats it
        group.shutdown()

    rank_0 = threading.Thread(target=honest)
    rank_0.start()
    impostor = Impostor(bootstraps[1])
    try:
        bad(impostor)
        ready.set()
        rank_0.join(60)
    finally:
        ready.set()
        impostor.close()
        rank_0.join(30)
    assert len(caught) == 1, "the honest rank hangs, or was not told"
    return caught[0][:3]


def add(group: Group) -> Any:
    return group.all_reduce(np.ones(1000, "float32"))


def receive(group: Group) -> Any:
    return group.receive(np.zeros(1000, np.uint8), 1, timeout=20.0).wait()


def garbage(impostor: Impostor) -> None:
    impostor.data[-1].sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)))


def oversized(impostor: Impostor) -> None:
    impostor.data[0].sendall(impostor.frame(0, 0, 0, bytes(524289), 0))


def unasked(impostor: Impostor) -> None:
    impostor.data[0].sendall(impostor.frame(FIRST, 0, 5, b"right form, wrong content", 0))


def garbled_control(impostor: Impostor) -> None:
    impostor.control.sendall(bytes(64))


def endless_control(impostor: Impostor) -> None:
    impostor.control.sendall(impostor.message(STATUS)[:16] + b"\xff" * 8)


def hung_up(impostor: Impostor) -> None:
    impostor.control.shutdown(socket.SHUT_RDWR)


def nasty_abort(impostor: Impostor) -> None:
    impostor.control.sendall(impostor.message(ABORT, b"\x03" + struct.pack("<II", 1, 1) + b"\x1b[2Jgone \xff\xfe"))


def endless_message(impostor: Impostor) -> None:
    """More bytes are announced than any machine has; then the message begins anew."""
    impostor.data[0].sendall(impostor.frame(MESSAGES, 0, 0, b"x", 1 << 62) + impostor.frame(MESSAGES, 1, 0, b"x", 1))


def interrupted_message(impostor: Impostor) -> None:
    impostor.data[0].sendall(impostor.frame(MESSAGES, 0, 0, b"x", 1000) + impostor.frame(MESSAGES, 1, 0, b"x", 1000))


def other_total(impostor: Impostor) -> None:
    impostor.data[0].sendall(impostor.frame(MESSAGES, 0, 0, b"x", 1000) + impostor.frame(MESSAGES, 1, 1, b"x", 2))


@pytest.mark.parametrize(
    ("bad", "call", "kind", "sentence"),
    [
        (garbage, add, "mismatch", r"rank 1 at .* sent a frame that cannot be believed \(it does not begin like one\)"),
        (oversized, add, "mismatch", r"rank 1 at .*\(it holds 524289 bytes where a slot takes 524288"),
        (
            unasked,
            add,
            "mismatch",
            r"rank 1 \(process 4711 on impostor\) and rank 0 disagree about .*25 bytes of slice 5",
        ),
        (
            garbled_control,
            add,
            "dead",
            r"rank 1 \(process 4711 .*: it was disconnected: it sent a control message that",
        ),
        (
            endless_control,
            add,
            "dead",
            r"rank 1 \(process 4711 .*: it was disconnected: it sent a control message that",
        ),
        (hung_up, add, "dead", r"rank 1 \(process 4711 .*: it closed its connection without a goodbye"),
        (nasty_abort, add, "dead", r"\?\[2Jgone \?\?"),
        (endless_message, receive, "mismatch", r"rank 1 sent a point-to-point frame out of order"),
        (interrupted_message, receive, "mismatch", r"rank 1 sent a point-to-point frame out of order"),
        (other_total, receive, "mismatch", r"rank 1 sent a point-to-point frame out of order"),
    ],
)
def test_a_member_that_talks_nonsense_is_named(
    bad: Callable[[Impostor], None], call: Callable[[Group], Any], kind: str, sentence: str
) -> None:
    found_kind, ranks, found = told(bad, call)
    assert found_kind == kind, found
    assert 1 in ranks, found
    assert re.search(sentence, found), found
