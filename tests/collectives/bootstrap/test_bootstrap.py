"""Ranks meet over TCP: normally, early, late, and with ranks that do not come."""

from __future__ import annotations

import atexit
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from syntony import TcpBootstrap
from syntony.base.command import UserError
from syntony.collectives.bootstrap import bootstraps
from syntony.collectives.bootstrap.slurm import slurm_step
from tests.collectives.meeting import HOST, SOON, at_once

ROOT = Path(__file__).parents[3]


def meet(rank: int, size: int, port: int, timeout: float = 60.0) -> list[list[bytes]]:
    with TcpBootstrap(rank, size, HOST, port, timeout) as bootstrap:
        return [bootstrap.all_gather("a", b"%d" % rank), bootstrap.all_gather("b", bytes(rank) * 70_000)]


def met(size: int) -> list[list[bytes]]:
    return [[b"%d" % rank for rank in range(size)], [bytes(rank) * 70_000 for rank in range(size)]]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_tcp_ranks_meet(size: int, port: int) -> None:
    found = at_once(*(lambda rank=rank: meet(rank, size, port) for rank in range(size)))
    assert found == [met(size)] * size


def test_tcp_groups_meet_one_after_another_at_one_port(port: int) -> None:
    """Rank 1 is early for the second group while rank 0 still serves the first."""
    early = threading.Event()

    def first() -> list[Any]:
        found = [meet(0, 2, port)]
        assert early.wait(60)
        return [*found, meet(0, 2, port)]

    def second() -> list[Any]:
        found = [meet(1, 2, port)]
        early.set()
        return [*found, meet(1, 2, port)]

    assert at_once(first, second) == [[met(2)] * 2] * 2


def test_a_rank_that_is_early_for_the_next_group_waits(port: int) -> None:
    may_close = threading.Event()
    early = threading.Event()

    def first() -> Any:
        with TcpBootstrap(0, 2, HOST, port, 60.0) as bootstrap:
            bootstrap.all_gather("a", b"")
            assert early.wait(60)
            assert not may_close.wait(0.2)  # rank 1 knocks meanwhile, in vain
        return meet(0, 2, port)

    def second() -> Any:
        with TcpBootstrap(1, 2, HOST, port, 60.0) as bootstrap:
            bootstrap.all_gather("a", b"")
        early.set()
        found = meet(1, 2, port)
        may_close.set()
        return found

    assert at_once(first, second) == [met(2)] * 2


def test_a_tcp_bootstrap_that_nobody_holds_frees_its_port(port: int) -> None:
    def rank(number: int) -> list[bytes]:
        return TcpBootstrap(number, 2, HOST, port, 60.0).all_gather("once", b"%d" % number)

    assert at_once(lambda: rank(0), lambda: rank(1)) == [[b"0", b"1"]] * 2
    socket.create_server((HOST, port)).close()


def test_a_name_may_come_again(port: int) -> None:
    def rank(number: int) -> list[list[bytes]]:
        with TcpBootstrap(number, 2, HOST, port, 60.0) as bootstrap:
            return [bootstrap.all_gather("same", b"%d of %d" % (turn, number)) for turn in range(3)]

    expected = [[b"%d of 0" % turn, b"%d of 1" % turn] for turn in range(3)]
    assert at_once(lambda: rank(0), lambda: rank(1)) == [expected] * 2


def test_too_large_a_blob_is_refused_before_it_is_sent(port: int) -> None:
    with (
        TcpBootstrap(0, 1, HOST, port) as bootstrap,
        pytest.raises(UserError, match=r"^16777217 bytes for 'a' are too many: ranks meet with at most 16777216$"),
    ):
        bootstrap.all_gather("a", bytes((1 << 24) + 1))


def test_who_waits_long_says_for_whom(
    port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstraps, "LONG", 0.2)
    with pytest.raises(ConnectionError):
        TcpBootstrap(1, 2, HOST, port, 0.5)
    with TcpBootstrap(0, 3, HOST, port, 0.5) as first, pytest.raises(TimeoutError):
        first.all_gather("names", b"")
    with TcpBootstrap(0, 2, HOST, port, 20.0), TcpBootstrap(1, 2, HOST, port), pytest.raises(ConnectionError):
        TcpBootstrap(1, 2, HOST, port, 0.5)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith(f"syntony: rank 1 has waited 0.2 s for rank 0 at {HOST}:{port}: ")
    assert lines[1] == f"syntony: rank 0 at {HOST}:{port} has waited 0.2 s for rank(s) 1, 2 in 'names'"
    assert lines[2].endswith(f"for rank 0 at {HOST}:{port}: another process is rank 1 there already")
    assert len(lines) == 3


# ---- ranks that do not come -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("absent", [1, 2])
def test_a_rank_that_does_not_come_is_named_to_all(absent: int, port: int) -> None:
    present = [rank for rank in range(3) if rank != absent]
    found = at_once(*(lambda rank=rank: meet(rank, 3, port, SOON) for rank in present))
    for failure in found:
        assert isinstance(failure, TimeoutError)
        assert str(failure) == f"rank(s) {absent} did not come to 'a' within 0.5 s"


def test_who_comes_too_late_is_told_too(port: int) -> None:
    with TcpBootstrap(0, 3, HOST, port, SOON) as first, TcpBootstrap(2, 3, HOST, port, 60.0) as late:
        for bootstrap in (first, late):
            with pytest.raises(TimeoutError, match=r"rank\(s\) 1, 2 did not come to 'a' within"):
                bootstrap.all_gather("a", b"")


def test_rank_0_that_is_absent_is_named(port: int) -> None:
    with pytest.raises(
        ConnectionError, match=rf"rank 1 could not reach rank 0 at {HOST}:{port} within 0.5 s: .*refused"
    ):
        TcpBootstrap(1, 2, HOST, port, SOON)


def test_rank_0_that_dies_is_named(port: int) -> None:
    script = (
        f"from syntony import TcpBootstrap\nTcpBootstrap(0, 2, '{HOST}', {port}).all_gather('a', b'')\n"
        "import os, sys\nsys.stdin.read()\nos._exit(1)"
    )
    with (
        subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE) as process,
        TcpBootstrap(1, 2, HOST, port) as bootstrap,
    ):
        bootstrap.all_gather("a", b"")
        process.kill()
        process.wait()
        with pytest.raises(
            ConnectionError,
            match=f"rank 1 lost rank 0 at {HOST}:{port} during 'b': .* cannot connect again: .* see whether rank 0",
        ):
            bootstrap.all_gather("b", b"")


def test_another_server_at_the_port(port: int) -> None:
    with socket.create_server((HOST, port)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-something else altogether")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(UserError, match=f"what answers at {HOST}:{port} is not the rank 0 that rank 1 looks for"):
            TcpBootstrap(1, 2, HOST, port, 60.0)
        thread.join()


def test_a_silent_server_at_the_port(port: int) -> None:
    with (
        socket.create_server((HOST, port)),
        pytest.raises(ConnectionError, match=f"rank 1 could not reach rank 0 at {HOST}:{port} within 0.5 s"),
    ):
        TcpBootstrap(1, 2, HOST, port, SOON)


def test_ranks_that_disagree_about_their_number(port: int) -> None:
    with (
        TcpBootstrap(0, 2, HOST, port, 60.0),
        pytest.raises(UserError, match=f"rank 1 was started with 3 ranks, but rank 0 at {HOST}:{port} with 2"),
    ):
        TcpBootstrap(1, 3, HOST, port, 60.0)


def test_a_port_in_use() -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UserError, match=f"^rank 0 cannot listen on port {port} of {HOST}: Address already in use$"):
            TcpBootstrap(0, 2, HOST, port, SOON)


def test_rank_0_listens_where_its_address_says_and_nowhere_else(port: int) -> None:
    with TcpBootstrap(0, 2, HOST, port), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5).close()


@pytest.mark.parametrize("rank", [0, 1])
def test_beyond_loopback_a_secret_is_asked_for(rank: int, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user can keep none of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    for address in ("0.0.0.0", "192.0.2.1"):
        with pytest.raises(UserError, match=rf"^ranks that meet at {address} need a secret, .*SYNTONY_SECRET"):
            TcpBootstrap(rank, 2, address, port, SOON)


def test_ranks_with_a_secret_meet_beyond_loopback(port: int) -> None:
    def meet(rank: int) -> list[bytes]:
        with TcpBootstrap(rank, 2, "0.0.0.0", port, 60.0, "sesame") as bootstrap:
            return bootstrap.all_gather("a", b"%d" % rank)

    assert at_once(lambda: meet(0), lambda: meet(1)) == [[b"0", b"1"]] * 2


def test_a_forked_child_that_ends_leaves_the_meeting_open(port: int) -> None:
    with TcpBootstrap(0, 2, HOST, port) as bootstrap:
        child = os.fork()
        if child == 0:
            atexit._run_exitfuncs()  # as a child that ends by sys.exit
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert (
            at_once(
                lambda: bootstrap.all_gather("a", b"0"),
                lambda: TcpBootstrap(1, 2, HOST, port, 10.0).all_gather("a", b"1"),
            )
            == [[b"0", b"1"]] * 2
        )


EXHAUSTED = """
import os, resource, sys, time
from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
with TcpBootstrap(0, 3, sys.argv[1], int(sys.argv[2]), float(sys.argv[3])) as bootstrap:
    while True:  # until the thread that accepts has a number at hand, which has no file yet
        free = os.dup(0)
        os.close(free)
        if not all(os.path.lexists(f"/proc/self/fd/{number}") for number in range(free)):
            break
        time.sleep(0.01)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass
    print("full", flush=True)
    if sys.stdin.readline() == "room\\n":
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    else:
        spent = time.process_time()
        time.sleep(1)
        print("idle" if time.process_time() - spent < 0.5 else "busy", flush=True)
    try:
        print(bootstrap.all_gather("a", b"0"), flush=True)
    except TimeoutError as late:
        print(late, flush=True)
"""


@contextmanager
def exhausted(port: int, timeout: float) -> Iterator[tuple[Callable[[str], None], Callable[[], str]]]:
    """A rank 0 of three that can open no file any more, while two strangers wait to be accepted: what says a line to
    it, what reads one. Its thread that accepts had a descriptor at hand: one connection at a time comes in."""
    command = [sys.executable, "-c", EXHAUSTED, HOST, str(port), str(timeout)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rank_0:
        said, heard = rank_0.stdin, rank_0.stdout
        assert said is not None
        assert heard is not None
        assert heard.readline() == "full\n"
        with socket.create_connection((HOST, port)), socket.create_connection((HOST, port)):
            yield lambda line: print(line, file=said, flush=True), lambda: heard.readline().rstrip("\n")


def test_rank_0_without_a_descriptor_left(port: int) -> None:
    """Strangers make way for ranks, who is not accepted is not told apart from who did not come, and no time is spent
    on trying again."""
    with exhausted(port, 3.0) as (say, hear), TcpBootstrap(1, 3, HOST, port, 60.0):
        with pytest.raises(ConnectionError, match=f"^rank 2 could not reach rank 0 at {HOST}:{port} within 0.5 s"):
            TcpBootstrap(2, 3, HOST, port, SOON)
        say("go on")
        assert hear() == "idle"
        assert hear() == (
            "rank(s) 1, 2 did not come to 'a' within 3 s (rank 0 cannot accept connections: Too many open files)"
        )


def test_rank_0_with_descriptors_again(port: int) -> None:
    def come() -> list[bytes]:
        with TcpBootstrap(2, 3, HOST, port, 60.0) as bootstrap:
            return bootstrap.all_gather("a", b"2")

    with exhausted(port, 60.0) as (say, hear), TcpBootstrap(1, 3, HOST, port, 60.0) as rank_1:
        say("room")
        assert at_once(lambda: rank_1.all_gather("a", b"1"), come) == [[b"0", b"1", b"2"]] * 2
        assert hear() == "[b'0', b'1', b'2']"


@pytest.mark.parametrize(
    ("rank", "size", "port", "sentence"),
    [
        (2, 2, 29500, "there is no rank 2 among 2 ranks: they count from 0"),
        (-1, 2, 29500, "there is no rank -1 among 2 ranks"),
        (0, 2, 0, "0 is not a port of rank 0: ports go from 1 to 65535"),
        (0, 2, 70000, "70000 is not a port of rank 0"),
    ],
)
def test_numbers_that_cannot_be(rank: int, size: int, port: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        TcpBootstrap(rank, size, HOST, port, SOON)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for variable, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": HOST, "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    return monkeypatch


def test_the_environment_of_a_launcher(environment: pytest.MonkeyPatch) -> None:
    bootstrap = TcpBootstrap.from_environment()
    assert (bootstrap.rank, bootstrap.size) == (0, 1)
    assert bootstrap.all_gather("a", b"alone") == [b"alone"]


@pytest.mark.parametrize("variable", ["RANK", "WORLD_SIZE", "MASTER_PORT"])
@pytest.mark.parametrize("value", [None, "", "two", "-1", "1.5"])
def test_an_environment_that_is_wrong(environment: pytest.MonkeyPatch, variable: str, value: str | None) -> None:
    if value is None:
        environment.delenv(variable)
    else:
        environment.setenv(variable, value)
    found = "is not set" if value is None else f"is {value!r}"
    with pytest.raises(UserError, match=re.escape(f"environment variable {variable} should be a number, it {found}")):
        TcpBootstrap.from_environment()


def test_under_torchrun_the_store_is_named(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    with pytest.raises(UserError, match="torchrun's own store answers at MASTER_PORT: use StoreBootstrap"):
        TcpBootstrap.from_environment()


# ---- processes ------------------------------------------------------------------------------------------------------

RANK = """
import json, sys
import numpy as np
from syntony import Communicator, TcpBootstrap

for turn in range(2):
    with Communicator.create(TcpBootstrap.from_environment(), timeout=60.0) as group:
        array = np.full(100_000, group.rank + 1 + turn, np.float32)
        group.all_reduce(array)
        assert (array == 3 + 2 * turn).all()
print(json.dumps({"rank": group.rank, "boxes": group.boxes}))
"""


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("gpu7", "gpu7"),
        ("login1,gpu[03-05]", "login1"),
        ("gpu[03-05,07],login1", "gpu03"),
        ("rack[1-2]gpu[08,11]-ib,gpu1", "rack1gpu08-ib"),
    ],
)
def test_a_step_of_slurm(monkeypatch: pytest.MonkeyPatch, nodes: str, first: str) -> None:
    srun = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_NODELIST": nodes, "SLURM_JOB_ID": "12005"}
    for variable, value in (srun | {"SLURM_STEP_ID": "2"}).items():
        monkeypatch.setenv(variable, value)
    told = {"RANK": "3", "WORLD_SIZE": "16", "MASTER_ADDR": first, "MASTER_PORT": str(20_000 + 5 + 2 * 997)}
    assert slurm_step() == told
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")  # a shell of salloc's
    assert slurm_step() == {}


@pytest.mark.parametrize(
    ("hosts", "launcher"),
    [
        (("one", "one"), ("RANK", "WORLD_SIZE", "MASTER_ADDR")),
        (("one", "two"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST")),
    ],
)
def test_processes_make_groups_on_one_host_and_on_two(
    hosts: tuple[str, str], launcher: tuple[str, str, str], port: int
) -> None:
    started = []
    for rank, host in enumerate(hosts):
        own = dict(zip(launcher, (f"{rank}", "2", HOST), strict=True))
        own |= {"MASTER_PORT": f"{port}", "SYNTONY_HOST": host, "SYNTONY_SECRET": "sesame"}
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TORCHELASTIC")} | own
        command = [sys.executable, "-c", RANK]
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    boxes = [[0, 1]] if hosts[0] == hosts[1] else [[0], [1]]
    assert [json.loads(output) for output in outputs] == [{"rank": rank, "boxes": boxes} for rank in range(2)]


OUTLIVING = """
import sys
import numpy as np
from syntony import Communicator, TcpBootstrap
bootstrap = TcpBootstrap.from_environment()
group = Communicator.create(bootstrap, timeout=60)
print("met", flush=True)
sys.stdin.readline()
for members in (group, group.split(0)):
    data = np.full(100_000, group.rank + 1.0)
    members.all_reduce(data)
    print(data.min(), data.max())
print(bootstrap.all_gather("again", b"%d" % group.rank))
"""


@contextmanager
def forwarded(port: int) -> Iterator[tuple[int, Callable[[], None]]]:
    """A port through which others reach `port`, and what resets all connections through it."""
    ends: list[socket.socket] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)

    def forward() -> None:
        with suppress(OSError):
            while True:
                near, _ = server.accept()
                try:
                    far = socket.create_connection((HOST, port))
                except ConnectionRefusedError:  # nobody listens yet
                    near.close()
                    continue
                ends.extend((near, far))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=(source, sink), daemon=True).start()

    def reset() -> None:
        for end in ends:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.shutdown(socket.SHUT_RD)  # wakes its thread
            end.close()

    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=forward, daemon=True).start()
        yield server.getsockname()[1], reset
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("host", ["one", "two"])
def test_a_group_outlives_the_connections_over_which_it_met(host: str, port: int) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("TORCHELASTIC")}
    clean |= {"WORLD_SIZE": "2", "MASTER_ADDR": HOST, "SYNTONY_SECRET": "sesame"}
    with forwarded(port) as (door, reset), ExitStack() as stack:
        ranks = []
        for rank, (where, name) in enumerate(((port, "one"), (door, host))):
            own = {"RANK": f"{rank}", "MASTER_PORT": f"{where}", "SYNTONY_HOST": name}
            process = subprocess.Popen(
                [sys.executable, "-c", OUTLIVING],
                cwd=ROOT,
                env=clean | own,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.kill)
            ranks.append(process)
        for process in ranks:
            assert process.stdout is not None
            assert process.stdout.readline() == "met\n"
        reset()
        for process in ranks:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=60)[0].splitlines() for process in ranks]
        assert outputs == [[*["3.0 3.0"] * 2, "[b'0', b'1']"]] * 2
