"""InNetwork and the aggregator's process, as users start them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from syntony import CommunicationError, InNetwork, LocalBootstrap, UsageError
from syntony.lab.aggregator import arguments_of, main
from syntony.topologies.aggregator import PROFILES
from tests.collectives.ranks import together


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A process that adds, by its own word."""
    command = [sys.executable, "-m", "syntony.lab.aggregator", "--listen", "127.0.0.1:0", "--tenants", "4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SYNTONY_SECRET", "sesame")  # the user's own is another one in each test's cache
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("aggregator at 127.0.0.1:")
        yield first.split()[2].rstrip(":")
        process.terminate()
        assert process.wait(20) == 0


def test_numpy_arrays_in_place_and_apart(address: str) -> None:
    def work(bootstrap: LocalBootstrap) -> tuple[Any, Any]:
        with InNetwork.create(bootstrap, address) as group:
            assert (group.rank, group.size) == (bootstrap.rank, 3)
            mine = np.full(50_000, group.rank + 1.5, np.float32)
            apart = np.empty_like(mine)
            group.all_reduce(mine, apart, number_format="int32_block")
            group.all_reduce(mine)
            return mine, apart

    for mine, apart in together(3, work):
        assert np.all(mine == 7.5)
        assert np.all(apart == 7.5)


def test_torch_tensors(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("SYNTONY_AGGREGATOR", address.replace("127.0.0.1", "localhost"))

    def work(bootstrap: LocalBootstrap) -> Any:
        with InNetwork.create(bootstrap) as group:
            tensor = torch.full((1000,), 1.0 + bootstrap.rank, dtype=torch.bfloat16)
            group.all_reduce(tensor)
            return tensor

    for tensor in together(2, work):
        assert tensor.eq(3).all()


def test_calls_that_mean_nothing_are_refused_before_anything_is_sent(address: str) -> None:
    def work(bootstrap: LocalBootstrap) -> list[str]:
        told = []
        with InNetwork.create(bootstrap, address) as group:
            numbers = np.ones(8, np.float32)
            for call in (
                lambda: group.all_reduce(numbers, np.ones(7, np.float32)),
                lambda: group.all_reduce(numbers, numbers.astype(np.float64)),
                lambda: group.all_reduce(numbers[:6], numbers[2:]),
                lambda: group.all_reduce(np.ones(8, np.int16)),
                lambda: group.all_reduce(numbers, number_format="float64"),
                lambda: group.all_reduce(numbers, number_format="int4"),
                lambda: group.all_reduce(numbers, timeout=0.0),
            ):
                with pytest.raises(ValueError, match=r".") as refused:
                    call()
                told.append(str(refused.value))
            group.all_reduce(numbers)  # the group goes on
            assert np.all(numbers == 2)
        return told

    for told in together(2, work):
        for sentence, expected in zip(
            told,
            (
                "the output of all_reduce holds 7 elements of float32, the input 8 of float32",
                "8 elements of float64",
                "overlap",
                "unknown number format 'int16'",
                "float64 does not carry elements of float32",
                "unknown number format 'int4'; known are float32",
                "a timeout is a positive number of seconds",
            ),
            strict=True,
        ):
            assert expected in sentence


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("", "SYNTONY_AGGREGATOR is not set"),
        ("10.0.0.1", "it must be HOST:PORT"),
        ("no.such.host.invalid:1", "the aggregator's address is 'no.such.host.invalid:1'"),
    ],
)
def test_addresses_that_are_none(address: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        InNetwork.create(LocalBootstrap.group(1)[0], address)


WORKER = """
import sys
import numpy as np
from syntony import InNetwork, TcpBootstrap
with TcpBootstrap.from_environment() as bootstrap:
    group = InNetwork.create(bootstrap, sys.argv[1])
    numbers = np.ones(1 << 16, np.float32)
    while True:
        group.all_reduce(numbers)
        numbers[:] = 1
        print("step", flush=True)
"""


def test_a_killed_worker_is_named_to_the_others_at_once(address: str) -> None:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    workers = []
    for rank in range(3):
        environment = os.environ | {
            "RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
        workers.append(
            subprocess.Popen(
                [sys.executable, "-c", WORKER, address],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "step\n"
    workers[1].send_signal(signal.SIGKILL)
    for worker in (workers[0], workers[2]):
        _, errors = worker.communicate(timeout=20)
        assert "rank 1 is gone: its connection to the aggregator closed" in errors
    workers[1].communicate()


def test_profiles_become_options() -> None:
    assert arguments_of(PROFILES["switchml"].aggregator) == [
        "--slots", "64", "--slot-bytes", "8192", "--format", "int32_block", "--format", "int32", "--tenants", "1",
    ]  # fmt: skip
    for profile in PROFILES.values():
        options = arguments_of(profile.aggregator)
        assert int(options[options.index("--slots") + 1]) >= 2 * profile.aggregator.tenants


def test_the_command_refuses_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--slots", "0"]) == 2
    assert capsys.readouterr().err == "aggregator: slots of the aggregator is 0; it must be 2 to 65536\n"
    with pytest.raises(SystemExit):
        main(["--format", "int4"])


def test_an_error_between_ranks_is_a_communication_error(address: str) -> None:
    def work(bootstrap: LocalBootstrap) -> None:
        with InNetwork.create(bootstrap, address) as group:
            group.all_reduce(np.ones(10 + group.rank, np.float32))

    with pytest.raises(ExceptionGroup) as failed:
        together(2, work)
    assert len(failed.value.exceptions) == 2
    for error in failed.value.exceptions:
        assert isinstance(error, CommunicationError)
        assert "the ranks disagree about operation 1" in str(error)
