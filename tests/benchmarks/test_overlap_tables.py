"""Contests of training steps: who takes part does, on real ranks of this machine; tables say what was missed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from syntony.benchmarks.overlap import context, counting, islands, memory
from syntony.benchmarks.overlap.contenders import contest, rank
from syntony.benchmarks.overlap.contenders.contest import Entry, Timed, Work, best, ends_of, work_of
from syntony.benchmarks.overlap.contenders.published import PUBLISHED
from syntony.benchmarks.overlap.contenders.settings import grid
from syntony.benchmarks.overlap.data_parallel import trainer
from syntony.benchmarks.overlap.policies import LABS, _lab, simulated
from syntony.benchmarks.overlap.tensor_parallel import losses
from syntony.overlap.policies.search import chain_of
from syntony.overlap.policies.table import POLICIES
from syntony.trainer.config import Config, Parallel
from tests.collectives.running import launch

pytest.importorskip("torch.distributed")

SLEEPS = {"subject": "emulated", "model": {"layers": 3, "weights": 3 * 4096, "seconds": 0.01}}
REAL = {
    "subject": "real",
    "model": {"blocks": 1, "width": 32, "heads": 2, "hidden": 64, "context": 16, "rows": 2},
}


def test_steps_are_timed_by_their_ends() -> None:
    class Contender:
        def step(self) -> None:
            moments.append(moments[-1] + len(moments))

        def finish(self) -> dict[str, object]:
            return {}

        def close(self) -> None:
            pass

    moments = [0.0]
    assert ends_of(Contender(), 4, clock=lambda: moments[-1]) == [1.0, 3.0, 6.0, 10.0]


def test_work_survives_its_text() -> None:
    work = Work((Entry("a", "ddp", {"bucket": 1.0}), Entry("b", "compute")), 4, 2)
    assert work_of(json.dumps(asdict(work))) == work


def test_the_best_of_a_grid_is_the_fastest_of_its_name() -> None:
    names = [entry.label for entry in grid("ddp", "ddp", ("gloo", "syntony"), "bucket", (1, 2))]
    assert names == ["ddp gloo bucket 1", "ddp gloo bucket 2", "ddp syntony bucket 1", "ddp syntony bucket 2"]
    timed = [Timed(name, (seconds,), {}) for name, seconds in zip(names, (3.0, 2.0, 1.0, 4.0), strict=True)]
    assert best(timed, "ddp gloo").label == "ddp gloo bucket 2"


def test_rows_of_islands_say_what_was_missed() -> None:
    assert all(Parallel(dp=2, **keys).apart == bool(keys) for keys in (islands.DATA | islands.PIPELINES).values())
    told = {"whole": 1.0, "sent": 1050.0, "simulated": 1.05, "sends": 1000}
    assert not islands._row(Timed("local SGD", (9.0,), told)).missed
    assert "+20.0% off" in islands._row(Timed("local SGD", (9.0,), told | {"simulated": 1.2})).missed
    assert "-5.0%" in islands._row(Timed("local SGD", (9.0,), told | {"sent": 950.0})).missed
    late = islands._row(Timed("hetpipe, one wave late", (1.0, 1.1), told))
    assert (late.cells[1], late.missed) == ("1050", "")


def test_everybody_takes_part(tmp_path: Path) -> None:
    ours = trainer("need:slice=4K", "off")
    tiny = {"model": {"blocks": 1, "width": 32, "heads": 2, "hidden": 64, "context": 16}, "parallel": {"dp": 2}}
    entries = (
        Entry("compute", "compute", REAL),
        Entry("communication", "communication", {**SLEEPS, "backend": "syntony"}),
        Entry("serial", "serial", {**SLEEPS, "backend": "gloo"}),
        Entry("ddp", "ddp", {**SLEEPS, "backend": "gloo", "bucket": 0}),
        Entry("hook", "ddp", {**REAL, "backend": "syntony", "bucket": 0.01, "policy": "need"}),
        Entry("fsdp", "fsdp", {**REAL, "backend": "syntony", "reshard": True, "prefetch": 1}),
        Entry("trainer", "trainer", {**ours.options, **tiny, "data": {"rows": 2, "microbatches": 2}}),
    )
    given, results = tmp_path / "work", tmp_path / "results"
    given.write_text(json.dumps(asdict(Work(entries, 3, 2))))
    done = launch(2, rank.__file__, given, results)
    assert results.exists(), f"{done.stdout}\n{done.stderr[-3000:]}"
    found = [contest.Timed(**timed) for timed in json.loads(results.read_text())]
    assert [one.label for one in found] == [entry.label for entry in entries]
    assert all(len(one.steps) == 4 and min(one.steps) > 0 for one in found)
    assert found[-1].told["estimate"] <= found[-1].told["simulated"] * (1 + 1e-9)


def test_every_named_system_has_a_row_that_can_be_simulated() -> None:
    ours = {name for name, entry in POLICIES.items() if entry.paper.startswith("none:")}
    assert ours == {"fifo", "serial", "need", "interleave"}
    assert {chain_of(row.policy)[0].name for row in PUBLISHED} == set(POLICIES) - ours
    row = next(row for row in PUBLISHED if row.policy == "p3")
    gain, maker = simulated(row)
    assert gain == pytest.approx(1.26, abs=0.01)
    assert maker.startswith("p3:")
    assert {where for _, where in map(_lab, PUBLISHED)} <= {"", *LABS}


def test_tensor_and_expert_parallel_contenders_compute_the_same(tmp_path: Path) -> None:
    model = {"blocks": 1, "width": 32, "heads": 2, "hidden": 64, "context": 16}
    data = {"rows": 4, "microbatches": 1}
    tp = {"model": model, "data": data, "parallel": {"tp": 2}}
    plain = tp | {"parallel": {"tp": 2, "sequence": False}}
    asleep = plain | {"run": {"compute": "emulated", "forward": 0.003}}
    ep = {"model": model | {"experts": 4}, "data": data | {"microbatches": 2}, "parallel": {"dp": 2, "ep": 2}}
    entries = (
        Entry("torch", "blocking", {"backend": "gloo", **plain}),
        Entry("torch sequence", "blocking", {"backend": "syntony", **tp}),
        Entry("dtensor", "dtensor", {"backend": "gloo", **plain}),
        Entry("dtensor sequence", "dtensor", {"backend": "syntony", **tp}),
        Entry("ours", "trainer", {"backend": "syntony", "policy": "domino", **tp}),
        Entry("experts", "blocking", {"backend": "gloo", **ep}),
        Entry("ours experts", "trainer", {"backend": "syntony", "policy": "lina", **ep}),
        Entry("tutel 1", "tutel", {"backend": "gloo", "degree": 1, **ep}),
        Entry("tutel 2", "tutel", {"backend": "syntony", "degree": 2, **ep}),
        Entry("asleep", "blocking", {"backend": "gloo", **asleep}),
        Entry("ours asleep", "trainer", {"backend": "syntony", "policy": "domino", **asleep}),
    )
    given, results = tmp_path / "work", tmp_path / "results"
    given.write_text(json.dumps(asdict(Work(entries, 2, 1))))
    done = launch(2, rank.__file__, given, results)
    assert results.exists(), f"{done.stdout}\n{done.stderr[-3000:]}"
    loss = {timed["label"]: timed["told"]["loss"] for timed in json.loads(results.read_text())}
    dense = [loss[name] for name in ("torch", "torch sequence", "dtensor", "dtensor sequence", "ours")]
    assert dense == pytest.approx([dense[0]] * 5, rel=1e-6)
    assert 5 < dense[0] < 6
    assert loss["ours experts"] == pytest.approx(loss["experts"], rel=1e-6)
    assert loss["tutel 1"] == pytest.approx(loss["tutel 2"], rel=1e-6)
    assert loss["tutel 1"] == pytest.approx(loss["experts"], rel=1e-2)  # some rows are dropped


def test_another_loss_is_a_miss() -> None:
    right = Timed("torch gloo", (1.0,), {"loss": 5.0})
    found = [right, Timed("ours domino", (1.0,), {"loss": 5.001}), Timed("tutel gloo", (1.0,), {"loss": 6.0})]
    assert losses(found, right).keys() == {"ours domino"}
    assert not losses([Timed("ours domino", (1.0,), {"loss": 5.0003})], right)


EVERY_LANE = (
    "dp 4, zero 3", "dp 4 x ep 2, experts move", "pp 4, zbv", "tp 4, sequence", "cp 4, ring",
    "dp 4, 2 islands, each 4th step",
)  # fmt: skip


@pytest.mark.parametrize(
    "chosen", [EVERY_LANE, pytest.param(tuple(counting.LAYOUTS), marks=pytest.mark.sweep)], ids=["sample", "all"]
)
def test_a_step_sends_the_bytes_of_its_plan(chosen: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTONY_ALGO", "")  # the table's own goes with the test
    monkeypatch.setattr(counting, "LAYOUTS", {name: counting.LAYOUTS[name] for name in chosen})
    rows = list(counting._rows(argparse.Namespace(ranks=0)))
    assert [row.missed for row in rows] == [""] * len(chosen)
    assert all(row.cells[3] == row.cells[4] != "0" for row in rows)


SELDOM = (
    "pp 4 gpipe", "pp 4 interleaved", "pp 4 zb1p", "pp 4 zb2p", "pp 4 gpipe, recompute", "pp 4 1f1b, recompute",
    "pp 2 x tp 2", "tp 4, recompute", "tp 4, grid", "cp 4", "dp 4, zero 3", "dp 4 x ep 4", "dp 4 x ep 4, shadows",
    "pp 4 chimera", "pp 4 hanayo", "pp 4 v_min", "pp 4 dualpipe_v", "pp 4 breadth_first", "pp 4 terapipe",
    "cp 4 striped", "cp 4 plain", "cp 4 double ring", "cp 4 ulysses", "cp 2 x tp 2", "dp 4, zero 2",
    "dp 4, zero 3, spread", "dp 4, zero 3, secondary", "dp 2 x tp 2, zero 3", "pp 4 bpipe, recompute",
    "dp 2 x ep 2 x tp 2, dedup", "dp 4 x ep 4, recompute", "dp 2 x ep 2 x pp 2, recompute", "dp 4 x ep 4, relay",
    "pp 4 zbv", "pp 4 1f1b", "pp 4 seq1f1b", "cp 4 usp", "dp 4 x ep 2, zero 3", "dp 2 x ep 2 x tp 2, dedup, recompute",
    "tp 4, rotate, recompute", "dp 2 x tp 2, rotate, zero 2", "pp 2 x tp 2, rotate",
)  # fmt: skip
"""Of memory's layouts: each part of them is in one of the others."""
ALIKE = {"cp 4 striped", "cp 4 plain", "cp 4 double ring", "dp 4, zero 3, spread", "dp 4, zero 3, secondary"}
"""They hold what cp 4 does, and dp 4, zero 3."""


def less(parallel: Parallel, microbatches: int, name: str, whole: Callable[..., Config]) -> Config:
    """Of a case of memory's, as few blocks and microbatches as will do."""
    case = whole(parallel, microbatches, name)
    if parallel.pp == 1:
        case = replace(case, model=replace(case.model, blocks=3))
    return case if parallel.pp > 1 or parallel.ep > 1 else replace(case, data=replace(case.data, microbatches=4))


@pytest.mark.parametrize("sample", [True, pytest.param(False, marks=pytest.mark.sweep)], ids=["sample", "all"])
def test_ranks_hold_what_their_plan_says(sample: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(SELDOM) <= memory.HELD.keys()
    if sample:
        monkeypatch.setattr(memory, "HELD", {name: case for name, case in memory.HELD.items() if name not in SELDOM})
        monkeypatch.setattr(memory, "config_of", partial(less, whole=memory.config_of))
    rows = list(memory._held(argparse.Namespace()))
    assert [row.missed for row in rows] == [""] * len(memory.HELD)
    others = [row.cells[2] for row in rows if row.cells[0] not in ALIKE]
    assert len(set(others)) == len(others)  # what differs in memory differs in its plan


def test_long_sequences_hold_what_their_plan_says() -> None:
    assert [row.missed for row in context._memory(argparse.Namespace(tokens=512))] == ["", ""]


def test_sharding_saves_what_its_paper_says() -> None:
    rows = list(memory._sharded(argparse.Namespace()))
    assert [(row.missed, row.cells[3]) for row in rows] == [("", "0.00%")] * 4
