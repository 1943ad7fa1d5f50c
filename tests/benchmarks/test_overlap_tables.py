"""Contests of training steps: who takes part does, on real ranks of this machine; tables say what was missed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.overlap import contest, rank
from benchmarks.overlap.contest import Entry, Timed, Work, best, time_steps, work_of
from benchmarks.overlap.data_parallel import ours
from benchmarks.overlap.policies import LABS, _lab, simulated
from benchmarks.overlap.published import PUBLISHED
from benchmarks.overlap.settings import grid
from collectives.overlap.policies import POLICIES
from collectives.overlap.search import chain_of
from tests.collectives.running import launch

pytest.importorskip("torch.distributed")

SLEEPS = {"subject": "emulated", "model": {"layers": 3, "weights": 3 * 4096, "seconds": 0.01}}
REAL = {
    "subject": "real",
    "model": {"blocks": 1, "width": 32, "heads": 2, "hidden": 64, "context": 16, "rows": 2},
}


def test_the_first_step_of_a_block_is_not_counted() -> None:
    class Contender:
        def step(self) -> None:
            moments.append(moments[-1] + len(moments))

        def finish(self) -> dict[str, object]:
            return {}

        def close(self) -> None:
            pass

    moments = [0.0]
    assert time_steps(Contender(), 4, clock=lambda: moments[-1]) == [2.0, 3.0, 4.0]


def test_work_survives_its_text() -> None:
    work = Work((Entry("a", "ddp", {"bucket": 1.0}), Entry("b", "compute")), 4, 2)
    assert work_of(json.dumps(asdict(work))) == work


def test_the_best_of_a_grid_is_the_fastest_of_its_name() -> None:
    names = [entry.label for entry in grid("ddp", "ddp", ("gloo", "syntony"), "bucket", (1, 2))]
    assert names == ["ddp gloo bucket 1", "ddp gloo bucket 2", "ddp syntony bucket 1", "ddp syntony bucket 2"]
    timed = [Timed(name, (seconds,), {}) for name, seconds in zip(names, (3.0, 2.0, 1.0, 4.0), strict=True)]
    assert best(timed, "ddp gloo").label == "ddp gloo bucket 2"


def test_everybody_takes_part(tmp_path: Path) -> None:
    trainer = ours("need", "off", slice="4K")
    tiny = {"model": {"blocks": 1, "width": 32, "heads": 2, "hidden": 64, "context": 16}, "parallel": {"dp": 2}}
    entries = (
        Entry("compute", "compute", REAL),
        Entry("communication", "communication", {**SLEEPS, "backend": "syntony"}),
        Entry("serial", "serial", {**SLEEPS, "backend": "gloo"}),
        Entry("ddp", "ddp", {**SLEEPS, "backend": "gloo", "bucket": 0}),
        Entry("hook", "ddp", {**REAL, "backend": "syntony", "bucket": 0.01, "policy": "need"}),
        Entry("fsdp", "fsdp", {**REAL, "backend": "syntony", "reshard": True, "prefetch": 1}),
        Entry("trainer", "trainer", {**trainer.options, **tiny, "data": {"rows": 2, "microbatches": 2}}),
    )
    given, results = tmp_path / "work", tmp_path / "results"
    given.write_text(json.dumps(asdict(Work(entries, 3, 2))))
    done = launch(2, rank.__file__, given, results)
    assert results.exists(), f"{done.stdout}\n{done.stderr[-3000:]}"
    found = [contest.Timed(**timed) for timed in json.loads(results.read_text())]
    assert [one.label for one in found] == [entry.label for entry in entries]
    assert all(len(one.steps) == 4 and min(one.steps) > 0 for one in found)
    assert found[-1].told["bound"] <= found[-1].told["simulated"] * (1 + 1e-9)


def test_every_named_system_has_a_row_that_can_be_simulated() -> None:
    plain = {"fifo", "serial", "need"}
    assert {chain_of(row.policy)[0].name for row in PUBLISHED} == set(POLICIES) - plain
    row = next(row for row in PUBLISHED if row.policy == "p3")
    gain, maker = simulated(row)
    assert gain == pytest.approx(1.26, abs=0.01)
    assert maker.startswith("p3:")
    assert {where for _, where in map(_lab, PUBLISHED)} <= {"", *LABS}
