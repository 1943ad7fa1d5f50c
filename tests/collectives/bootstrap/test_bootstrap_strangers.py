"""Strangers at the door of ranks that meet over TCP, and the secret that keeps them out."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from syntony import TcpBootstrap
from syntony.base.command import UserError
from syntony.collectives.bootstrap import tcp_meeting, user_secret
from syntony.collectives.bootstrap.tcp_meeting import FRAME, MAGIC
from tests.collectives.meeting import HOST, SOON, at_once

ROOT = Path(__file__).parents[3]

GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n",
    "our magic, then nonsense": MAGIC + b"\xff" * 400,
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


def test_a_stranger_without_the_secret_takes_no_seat(port: int) -> None:
    """It plays by the rules but for the proof, or says again what a rank has said before."""
    hello = FRAME.pack(MAGIC, 1, 0, 2) + bytes(64)
    with TcpBootstrap(0, 2, HOST, port, 60.0, "sesame") as bootstrap:
        recorded: list[bytes] = []
        with relay(port, recorded) as between, TcpBootstrap(1, 2, HOST, between, 60.0, "sesame"):
            pass
    said = b"".join(recorded)
    assert len(said) == 3 * 32 + 2 * FRAME.size, "hello, proof and farewell were overheard"
    said_first, proof = said[: FRAME.size + 64], said[FRAME.size + 64 : FRAME.size + 96]
    with TcpBootstrap(0, 2, HOST, port, 60.0, "sesame") as bootstrap:
        for words in ((hello, bytes(32)), (hello, os.urandom(32)), (said_first, proof)):
            heard = said_to(port, *words)
            assert heard[FRAME.size + 32 :] == FRAME.pack(MAGIC, 0, 1, 0) + bytes(32), "refused, and no proof told"
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
                connection.sendall(FRAME.pack(MAGIC, 0, 0, 2) + bytes(32))
                connection.recv(1 << 16)
                connection.sendall(FRAME.pack(MAGIC, 0, 0, 0) + bytes(32))
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
        monkeypatch.setattr(tcp_meeting, "PATIENCE", SOON)

        def speak() -> None:
            with socket.create_connection((HOST, port), timeout=60) as stranger:
                for byte in FRAME.pack(MAGIC, 1, 0, 2) + bytes(96):
                    stranger.sendall(bytes([byte]))
                    time.sleep(SOON / 10)

        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            speak()


def test_an_answer_that_makes_no_sense_ends_it(port: int) -> None:
    """Rank 0 says that gigabytes follow: nobody makes room for them."""
    bootstrap = TcpBootstrap(0, 2, HOST, port, 60.0)
    ours, theirs = socket.socketpair()
    with bootstrap, ours, theirs:
        theirs.sendall(FRAME.pack(MAGIC, 0, 0, 0xFFFFFFFF))
        with pytest.raises(UserError, match=f"what rank 0 at {HOST}:{port} answers during 'a' makes no sense"):
            bootstrap._answer(ours, "a")


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
