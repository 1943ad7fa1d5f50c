"""Sums of gradients begin when the plan wants them to, not as soon as there are gradients."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from syntony.collectives.bootstrap.launch import Exchange, run_ranks  # noqa: E402
from syntony.overlap.policies.table import policy  # noqa: E402
from syntony.overlap.step.op import Kind  # noqa: E402
from syntony.trainer.config import Config, Data, Model, Parallel, Run  # noqa: E402
from syntony.trainer.parallel.mesh import Mesh  # noqa: E402
from syntony.trainer.run.loop import train  # noqa: E402
from syntony.trainer.run.measure.profile import cost_of  # noqa: E402
from syntony.trainer.run.rank import Rank, World  # noqa: E402


def ranks_step(config: Config, name: str, into: Path, exchange: Exchange | None) -> int:
    def work(config: Config, mesh: Mesh, world: World) -> None:
        rank = Rank(config, mesh, world)
        rank.begin(policy(name).plan(rank.recorded(), cost_of(rank.recorded(), {}, {})))
        tokens = torch.zeros(config.data.rows, config.model.context, dtype=torch.int64)
        rank.step([(tokens, tokens)], 1e-5)
        rank.rest()
        sums = [record.ready for record in rank.runner.records() if rank.plan.graph[record.key].pieces]
        computed = [s.begin for s in rank.interpreter.spans if rank.plan.graph[s.key].kind is Kind.BACKWARD]
        if mesh.rank == 0:
            into.write_text(json.dumps([min(sums), max(computed)]))
        rank.close()

    return train(config, exchange, work)


@pytest.mark.parametrize(("name", "late"), [("serial", True), ("fifo", False)])
def test_a_sum_waits_for_what_the_plan_says(name: str, late: bool, tmp_path: Path) -> None:
    config = Config(
        Model(blocks=4, width=32, heads=2, hidden=64, context=16),
        Data(source=__file__, rows=1, microbatches=2),
        parallel=Parallel(dp=2),
        run=Run(compute="emulated", forward=0.01),
    )
    run_ranks(2, partial(ranks_step, config, name, tmp_path / "times"), 60.0)
    first_sum, last_backward = json.loads((tmp_path / "times").read_text())
    assert (first_sum > last_backward) is late
