"""Four ways to meet: normal, with strangers at the door, and with ranks that do not come."""

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
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from syntony import LocalBootstrap, StoreBootstrap, TcpBootstrap
from syntony.base.command import UserError
from syntony.collectives.bootstrap import bootstraps, tcp_bootstrap, user_secret

ROOT = Path(__file__).parents[2]
SOON = 0.5  # seconds until somebody gives up, in tests where somebody must
HOST = "127.0.0.1"


@pytest.fixture
def port() -> int:
    with socket.create_server((HOST, 0)) as server:
        number: int = server.getsockname()[1]
        return number


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """What each job returned or raised, all run in threads of their own."""

    def caught(job: Callable[[], Any]) -> Any:
        try:
            return job()
        except Exception as failure:
            return failure

    with ThreadPoolExecutor(len(jobs)) as threads:
        return list(threads.map(caught, jobs))


def meet(rank: int, size: int, port: int, timeout: float = 60.0) -> list[list[bytes]]:
    with TcpBootstrap(rank, size, HOST, port, timeout) as bootstrap:
        return [bootstrap.all_gather("a", b"%d" % rank), bootstrap.all_gather("b", bytes(rank) * 70_000)]


def met(size: int) -> list[list[bytes]]:
    return [[b"%d" % rank for rank in range(size)], [bytes(rank) * 70_000 for rank in range(size)]]


# ---- TcpBootstrap ---------------------------------------------------------------------------------------------------


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


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n",
    "our magic, then nonsense": b"syntony2" + b"\xff" * 400,
    "half a hello": b"synt",
    "nothing": None,
}


@pytest.mark.parametrize("garbage", GARBAGE)
def test_strangers_disturb_nobody(garbage: str, port: int) -> None:
    with ExitStack() as stack:
        bootstrap = stack.enter_context(TcpBootstrap(0, 2, HOST, port, 60.0))
        for _ in range(3):
            stranger = stack.enter_context(socket.create_connection((HOST, port)))
            if (words := GARBAGE[garbage]) is not None:
                stranger.sendall(words)
        found = at_once(
            lambda: bootstrap.all_gather("a", b"0"),
            lambda: TcpBootstrap(1, 2, HOST, port, 60.0).all_gather("a", b"1"),
        )
        assert found == [[b"0", b"1"]] * 2


# ---- the secret -----------------------------------------------------------------------------------------------------

HELLO = struct.Struct("<8sIII")  # as in src/syntony/collectives/bootstrap/tcp_bootstrap.py


def with_secret(rank: int, port: int, secret: str, timeout: float = 60.0) -> list[bytes]:
    with TcpBootstrap(rank, 2, HOST, port, timeout, secret) as bootstrap:
        return bootstrap.all_gather("a", b"%d" % rank)


def said_to(port: int, *words: bytes) -> bytes:
    """What rank 0 answers to a stranger that says `words`, one after each answer, until it hangs up."""
    heard = b""
    with socket.create_connection((HOST, port), timeout=60) as connection:
        for word in words:
            connection.sendall(word)
            heard += connection.recv(1 << 16)
        with suppress(ConnectionError):
            while more := connection.recv(1 << 16):
                heard += more
    return heard


def test_ranks_with_one_secret_meet(port: int) -> None:
    found = at_once(*(lambda rank=rank: with_secret(rank, port, "sesame") for rank in range(2)))
    assert found == [[b"0", b"1"]] * 2


@pytest.mark.parametrize(("of_rank_0", "of_rank_1"), [("sesame", "poppy"), ("sesame", ""), ("", "sesame")])
def test_ranks_with_unlike_secrets_are_told_and_take_no_seat(of_rank_0: str, of_rank_1: str, port: int) -> None:
    with TcpBootstrap(0, 2, HOST, port, 60.0, of_rank_0) as bootstrap:
        with pytest.raises(
            UserError, match=f"^rank 1 and rank 0 at {HOST}:{port} do not have the same secret, or are "
        ):
            TcpBootstrap(1, 2, HOST, port, 60.0, of_rank_1)
        found = at_once(lambda: bootstrap.all_gather("a", b"0"), lambda: with_secret(1, port, of_rank_0))
        assert found == [[b"0", b"1"]] * 2


def test_two_jobs_at_one_port_do_not_mix(port: int) -> None:
    """Rank 1 of another job, and then this job's."""
    with ThreadPoolExecutor() as threads:
        rank_0 = threads.submit(lambda: TcpBootstrap(0, 2, HOST, port, job="one").all_gather("first", b"0"))
        with pytest.raises(UserError, match="or are of two jobs"):
            TcpBootstrap(1, 2, HOST, port, 20.0, job="two")
        assert TcpBootstrap(1, 2, HOST, port, 20.0, job="one").all_gather("first", b"1") == [b"0", b"1"]
        assert rank_0.result() == [b"0", b"1"]


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


def test_a_stranger_without_the_secret_takes_no_seat(port: int) -> None:
    """It plays by the rules but for the proof, or says again what a rank has said before."""
    hello = HELLO.pack(b"syntony2", 1, 0, 2) + bytes(32)
    with TcpBootstrap(0, 2, HOST, port, 60.0, "sesame") as bootstrap:
        recorded: list[bytes] = []
        with relay(port, recorded) as between, TcpBootstrap(1, 2, HOST, between, 60.0, "sesame"):
            pass
    said = b"".join(recorded)
    assert len(said) == 2 * 32 + HELLO.size, "hello and proof were overheard"
    with TcpBootstrap(0, 2, HOST, port, 60.0, "sesame") as bootstrap:
        for words in ((hello, bytes(32)), (hello, os.urandom(32)), (said[: HELLO.size + 32], said[HELLO.size + 32 :])):
            heard = said_to(port, *words)
            assert heard[HELLO.size + 32 :] == HELLO.pack(b"syntony2", 0, 1, 0) + bytes(32), (
                "refused, and no proof told"
            )
        found = at_once(lambda: bootstrap.all_gather("a", b"0"), lambda: with_secret(1, port, "sesame"))
        assert found == [[b"0", b"1"]] * 2


@contextmanager
def relay(port: int, recorded: list[bytes]) -> Iterator[int]:
    """A port that passes one connection on to `port`, and writes down what the dialling side says."""
    with socket.create_server((HOST, 0)) as server:

        def carry(source: socket.socket, target: socket.socket, note: Callable[[bytes], object]) -> None:
            with suppress(OSError):
                while words := source.recv(1 << 16):
                    note(words)
                    target.sendall(words)
            with suppress(OSError):
                target.shutdown(socket.SHUT_WR)

        def serve() -> None:
            near, _ = server.accept()
            with near, socket.create_connection((HOST, port)) as far:
                back = threading.Thread(target=carry, args=(far, near, lambda words: None))
                back.start()
                carry(near, far, recorded.append)
                back.join()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def test_a_server_that_does_not_know_the_secret_is_refused(port: int) -> None:
    """A stranger listens where rank 0 should: it gets no proof that it could use, and no blob."""
    with socket.create_server((HOST, port)) as server:
        heard: list[bytes] = []

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(HELLO.pack(b"syntony2", 0, 0, 2) + bytes(32))
                connection.recv(1 << 16)
                connection.sendall(HELLO.pack(b"syntony2", 0, 0, 0) + bytes(32))
                heard.append(connection.recv(1 << 16))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(UserError, match="do not have the same secret"):
            TcpBootstrap(1, 2, HOST, port, 60.0, "sesame")
        thread.join()
    assert heard == [b""]


def test_a_crowd_of_silent_strangers_keeps_nobody_out(port: int) -> None:
    """More than may stand at the door at a time: those that came first have to go, and no thread is left of them."""
    with ExitStack() as stack:
        bootstrap = stack.enter_context(TcpBootstrap(0, 2, HOST, port, 60.0, "sesame"))
        crowd = [stack.enter_context(socket.create_connection((HOST, port))) for _ in range(300)]
        found = at_once(lambda: bootstrap.all_gather("a", b"0"), lambda: with_secret(1, port, "sesame"))
        assert found == [[b"0", b"1"]] * 2
        for stranger in crowd[:200]:
            stranger.settimeout(60)
            with suppress(ConnectionError):
                assert stranger.recv(1) == b""
        assert sum(thread.name == "syntony-meeting" for thread in threading.enumerate()) < 100


def test_a_stranger_that_speaks_a_byte_at_a_time_has_to_hurry(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in good time, all of them do not: the time is for the whole handshake."""
    with TcpBootstrap(0, 2, HOST, port, 60.0, "sesame"):
        monkeypatch.setattr(tcp_bootstrap, "_HANDSHAKE", SOON)

        def speak() -> None:
            with socket.create_connection((HOST, port), timeout=60) as stranger:
                for byte in HELLO.pack(b"syntony2", 1, 0, 2) + bytes(64):
                    stranger.sendall(bytes([byte]))
                    time.sleep(SOON / 10)

        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            speak()


def test_an_answer_that_makes_no_sense_ends_it(port: int) -> None:
    """Rank 0 says that gigabytes follow: nobody makes room for them."""
    bootstrap = TcpBootstrap(0, 2, HOST, port, 60.0)
    ours, theirs = socket.socketpair()
    with bootstrap, ours, theirs:
        theirs.sendall(HELLO.pack(b"syntony2", 0, 0, 0xFFFFFFFF))
        with pytest.raises(ConnectionError, match="its answer makes no sense"):
            bootstrap._answer(ours)


def test_too_large_a_blob_is_refused_before_it_is_sent(port: int) -> None:
    with (
        TcpBootstrap(0, 1, HOST, port) as bootstrap,
        pytest.raises(UserError, match=r"^16777217 bytes for 'a' are too many: ranks meet with at most 16777216$"),
    ):
        bootstrap.all_gather("a", bytes((1 << 24) + 1))


# ---- the user's own secret ------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SYNTONY_SECRET", raising=False)
    return tmp_path / "syntony" / "secret" / "secret"


def test_ranks_of_one_home_have_one_secret_without_being_asked(home: Path, port: int) -> None:
    found = at_once(*(user_secret.given_secret for _ in range(16)))
    assert len(set(found)) == 1
    assert re.fullmatch("[0-9a-f]{64}", found[0])
    assert home.read_text() == found[0]
    assert list(home.parent.iterdir()) == [home], "nothing is left beside it"
    assert home.stat().st_mode & 0o777 == 0o600

    def meet(rank: int) -> list[bytes]:
        with TcpBootstrap(rank, 2, "0.0.0.0", port, 60.0) as bootstrap:
            return bootstrap.all_gather("a", b"%d" % rank)

    assert at_once(lambda: meet(0), lambda: meet(1)) == [[b"0", b"1"]] * 2


def test_a_second_user_takes_no_seat_on_loopback(home: Path, port: int, tmp_path: Path) -> None:
    """Somebody whose home is another one, though neither was given a secret."""
    with TcpBootstrap(0, 2, HOST, port, 60.0) as bootstrap:
        script = f"from syntony import TcpBootstrap\nTcpBootstrap(1, 2, '{HOST}', {port}, 20.0)"
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "another")}
        stranger = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert "do not have the same secret" in stranger.stderr
        found = at_once(
            lambda: bootstrap.all_gather("a", b"0"), lambda: TcpBootstrap(1, 2, HOST, port).all_gather("a", b"1")
        )
        assert found == [[b"0", b"1"]] * 2


@pytest.mark.parametrize("trouble", ["readable by others", "a link", "cut short", "others may write the folder"])
def test_a_secret_that_others_may_know_is_not_believed(trouble: str, home: Path, tmp_path: Path) -> None:
    own = user_secret.user_secret()
    if trouble == "readable by others":
        home.chmod(0o640)
    elif trouble == "a link":
        home.rename(tmp_path / "elsewhere")
        home.symlink_to(tmp_path / "elsewhere")
    elif trouble == "cut short":
        home.write_text(own[:-1])
    else:
        home.parent.chmod(0o777)
    assert user_secret.user_secret() == ""


def test_the_core_is_told_what_ranks_know(home: Path, port: int) -> None:
    """It depends on the secret and the job, and is not what travels."""
    told = [TcpBootstrap(0, 1, HOST, port, 1.0, secret, job).secret for secret in ("a", "b") for job in ("", "c")]
    assert len(set(told)) == 4
    assert TcpBootstrap(0, 1, HOST, port, 1.0).secret == TcpBootstrap(0, 1, HOST, port, 1.0, home.read_text()).secret


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
        with pytest.raises(ConnectionError, match=f"lost rank 0 at {HOST}:{port} during 'b': "):
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
        pytest.raises(UserError, match=f"rank 1 was told of 3 ranks, rank 0 at {HOST}:{port} of 2"),
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
with TcpBootstrap(0, 3, sys.argv[1], int(sys.argv[2]), 3.0) as bootstrap:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass
    print("full", flush=True)
    sys.stdin.readline()
    spent = time.process_time()
    time.sleep(1)
    print("idle" if time.process_time() - spent < 0.5 else "busy", flush=True)
    if sys.argv[3] == "given back":
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    try:
        print(bootstrap.all_gather("a", b"0"), flush=True)
    except TimeoutError as late:
        print(late, flush=True)
"""


@pytest.mark.parametrize(
    ("fate", "end"),
    [
        ("given back", r"\[b'0', b'1', b'2'\]"),
        (
            "kept",  # the thread that accepts had one at hand: one rank comes in, as soon as the stranger is out
            r"rank\(s\) [12] did not come to 'a' within 3 s \(rank 0 cannot accept connections: Too many open files\)",
        ),
    ],
)
def test_rank_0_without_a_descriptor_left(fate: str, end: str, port: int) -> None:
    command = [sys.executable, "-c", EXHAUSTED, HOST, str(port), fate]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as rank_0:
        assert rank_0.stdin is not None
        assert rank_0.stdout is not None
        assert rank_0.stdout.readline() == "full\n"

        def come(rank: int) -> list[bytes]:
            with TcpBootstrap(rank, 3, HOST, port, 20.0 if fate == "given back" else SOON) as bootstrap:
                return bootstrap.all_gather("a", str(rank).encode())

        with ThreadPoolExecutor(2) as threads:
            coming = [threads.submit(come, rank) for rank in (1, 2)]
            with socket.create_connection((HOST, port)):  # somebody waits to be accepted
                rank_0.stdin.write("\n")
                rank_0.stdin.flush()
                assert rank_0.stdout.readline() == "idle\n"
                assert re.fullmatch(end, rank_0.stdout.readline().rstrip("\n"))
            assert fate == "kept" or [done.result() for done in coming] == [[b"0", b"1", b"2"]] * 2


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


@pytest.mark.parametrize("hosts", [("one", "one"), ("one", "two")])
def test_processes_make_groups_on_one_host_and_on_two(hosts: tuple[str, str], port: int) -> None:
    started = []
    for rank, host in enumerate(hosts):
        own = {
            "RANK": f"{rank}",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": HOST,
            "MASTER_PORT": f"{port}",
            "SYNTONY_HOST": host,
            "SYNTONY_SECRET": "sesame",
        }
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TORCHELASTIC")} | own
        command = [sys.executable, "-c", RANK]
        started.append(subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    boxes = [[0, 1]] if hosts[0] == hosts[1] else [[0], [1]]
    assert [json.loads(output) for output in outputs] == [{"rank": rank, "boxes": boxes} for rank in range(2)]


# ---- StoreBootstrap -------------------------------------------------------------------------------------------------


def hash_stores(size: int) -> list[Any]:
    distributed = pytest.importorskip("torch.distributed")
    return [distributed.HashStore()] * size


def tcp_stores(size: int) -> list[Any]:
    distributed = pytest.importorskip("torch.distributed")
    limit = timedelta(seconds=60)
    first = distributed.TCPStore(HOST, 0, size, True, limit, wait_for_workers=False)
    others = [
        distributed.TCPStore(HOST, first.port, size, False, limit, wait_for_workers=False) for _ in range(1, size)
    ]
    return [first, *others]


STORES = {"hash": hash_stores, "tcp": tcp_stores}


@pytest.mark.parametrize("kind", STORES)
def test_ranks_meet_at_a_store(kind: str) -> None:
    stores = STORES[kind](3)

    def rank(number: int) -> list[list[bytes]]:
        found = []
        for _ in range(2):  # one bootstrap after another, each with a name that comes again
            bootstrap = StoreBootstrap(stores[number], number, 3, 60.0)
            found += [bootstrap.all_gather("a", b"%d" % (number + turn)) for turn in range(2)]
        return found

    expected = [[b"%d" % (number + turn) for number in range(3)] for _ in range(2) for turn in range(2)]
    assert at_once(*(lambda number=number: rank(number) for number in range(3))) == [expected] * 3


@pytest.mark.parametrize("kind", STORES)
def test_a_rank_that_does_not_come_to_the_store_is_named(
    kind: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstraps, "LONG", 0.2)
    stores = STORES[kind](3)
    found = at_once(
        *(lambda rank=rank: StoreBootstrap(stores[rank], rank, 3, SOON).all_gather("a", b"") for rank in (0, 2))
    )
    for failure in found:
        assert isinstance(failure, TimeoutError)
        assert str(failure) == "rank(s) 1 did not come to 'a' within 0.5 s"
    told = {line for line in capfd.readouterr().err.splitlines() if line.startswith("syntony: ")}
    assert told == {f"syntony: rank {rank} of 3 has waited 0.2 s for rank(s) 1 of its group in 'a'" for rank in (0, 2)}


class BrokenStore:
    """A store whose server has gone."""

    def add(self, _key: str, _amount: int) -> int:
        return 1

    def set(self, _key: str, _value: Any) -> None: ...

    def _fail(self, *_arguments: Any) -> Any:
        raise RuntimeError("connection reset by peer")

    wait = get = check = _fail


def test_a_store_that_fails() -> None:
    bootstrap = StoreBootstrap(BrokenStore(), 0, 2)
    with pytest.raises(RuntimeError, match="the store failed while ranks met at 'a': connection reset by peer"):
        bootstrap.all_gather("a", b"")


# ---- LocalBootstrap -------------------------------------------------------------------------------------------------


def test_threads_meet() -> None:
    ranks = LocalBootstrap.group(3)
    for _ in range(2):  # the name comes again
        found = at_once(*(lambda rank=rank: rank.all_gather("a", b"%d" % rank.rank) for rank in ranks))
        assert found == [[b"0", b"1", b"2"]] * 3


def test_a_thread_that_does_not_come_is_named() -> None:
    ranks = LocalBootstrap.group(3, timeout=SOON)
    found = at_once(lambda: ranks[0].all_gather("a", b""), lambda: ranks[2].all_gather("a", b""))
    assert [str(failure) for failure in found] == ["rank(s) 1 did not come to 'a' within 0.5 s"] * 2
