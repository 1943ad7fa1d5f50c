"""The probe on real ranks: what it says is what a group can measure, and its command behaves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from syntony import Communicator
from syntony.__main__ import main
from syntony.collectives.probe import Effort, _Pairs, probe
from syntony.topologies import file_format
from syntony.topologies.file_format import from_json
from syntony.topologies.probed.health import suspects
from syntony.topologies.probed.network import explain
from tests import forked
from tests.collectives.ranks import Ranks
from tests.collectives.running import faulty_lab


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_every_rank_finds_the_same(ranks: int) -> None:
    def job(group: Communicator) -> None:
        hosts = [f"host{rank}" for rank in range(ranks)]
        measurements, root = probe(group, hosts, Effort(largest=1 << 16, enough=1e-3, repeat=2))
        wires = ~np.eye(ranks, dtype=bool)
        assert (measurements.bandwidth[wires] > 0).all()
        assert (measurements.alpha[wires] >= 0).all()
        topology = explain(measurements, root)
        assert topology.ranks == ranks
        blob = np.frombuffer(file_format.to_json(topology).encode(), np.uint8)
        lengths = np.zeros(ranks, np.int64)
        group.all_gather(np.asarray([len(blob)], np.int64), lengths)
        assert len(set(lengths.tolist())) == 1
        everybody = np.zeros((ranks, len(blob)), np.uint8)
        group.all_gather(blob.copy(), everybody)
        assert (everybody == blob).all()

    group = Ranks(ranks)
    try:
        group.run(job)
    finally:
        group.close()


def test_only_what_stays_slow_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 seems to be late towards 1 when they are first measured, as under load; rank 2 towards 3 always is."""
    late, again = 5e-3, set[int]()

    def seconds(pairs: _Pairs, receiver: int, size: int) -> float:
        sender = pairs._group.rank
        exchange(pairs, receiver, size)
        for_once = (sender, receiver) == (0, 1) and sender not in again
        return (late if for_once or (sender, receiver) == (2, 3) else 2e-5) + size / 1e9

    def send(pairs: _Pairs, receiver: int) -> None:
        send_all(pairs, receiver)
        if receiver == 1:
            again.add(pairs._group.rank)

    def job(group: Communicator) -> None:
        measurements, root = probe(group, ["a", "b", "c", "d"], Effort(largest=1 << 16, enough=1e-3, repeat=2))
        assert suspects(measurements, root) == [(2, 3)]
        assert measurements.alpha[0, 1] == pytest.approx(1e-5)
        assert measurements.alpha[2, 3] == pytest.approx(late / 2)

    exchange, send_all = _Pairs._one, _Pairs._send
    monkeypatch.setattr(_Pairs, "_one", seconds)
    monkeypatch.setattr(_Pairs, "_send", send)
    group = Ranks(4)
    try:
        group.run(job)
    finally:
        group.close()


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return forked.run(main, ["topo", "probe", *words])


def test_the_command_writes_what_topo_reads(tmp_path: Path) -> None:
    path = tmp_path / "here.json"
    done = command("--ranks", "3", "-o", str(path), "--largest", "64K")
    assert done.returncode == 0, done.stderr
    assert "3 ranks on 1 host" in done.stdout
    assert from_json(path.read_text()).ranks == 3


def test_json() -> None:
    done = command("--ranks", "2", "--json", "--largest", "64K")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["healthy"] is True  # two ranks have no peers
    assert found["bandwidth"][0][0] is None
    assert found["topology"]["name"] == "probed"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--ranks", "1"], "there is one rank only: wires are between two ranks or more"),
        (["--tolerance", "2"], "--tolerance 2: it is a part of the peers' median, between 0 and 1"),
        (["-o", "here.svg"], "here.svg: a topology file is JSON; its name must end in .json"),
        (["--largest", "x"], "'x' is not a size"),
    ],
)
def test_mistakes(words: list[str], sentence: str) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert sentence in done.stderr


@pytest.mark.alone
def test_a_slow_wire_of_an_emulated_cluster_is_named() -> None:
    """Three good hosts and one whose wire has a quarter of their rate; needs what `syntony lab` needs."""
    done = faulty_lab("slow rank2-switch to 25mbit at 0s", "topo", "probe", "--health", "--largest", "128K")
    assert done.returncode == 1, done.stdout + done.stderr
    slow = [line for line in done.stdout.splitlines() if "SLOW" in line]
    assert slow
    assert all("SLOW: rank 2 (h2)" in line for line in slow), slow
