"""PlanRunner on real ranks: canonical sums bit by bit, the plan's order, actions, failures that name step and op."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tests.collectives.running import launch

pytest.importorskip("torch.distributed")

SCRIPT = Path(__file__).with_name("plan_runner_script.py")


@pytest.mark.parametrize("backend", ["syntony", "gloo"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sums_are_the_tree_of_one_process(backend: str, ranks: int) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    done = launch(ranks, SCRIPT, backend, str(seed))
    assert done.stdout.count("passed") == ranks, f"{done.stdout}\n{done.stderr[-3000:]}"


def test_a_killed_rank_ends_the_step_by_name() -> None:
    done = launch(3, SCRIPT, "syntony", "7", "kill")
    said = re.findall(r"survivor \d: (step \d: .*)", done.stdout)
    assert len(said) == 2, f"{done.stdout}\n{done.stderr[-3000:]}"
    for sentence in said:
        assert re.match(r"step 2: (all_reduce|reduce_scatter) of reduce\.\d/\d on lane 'dp': ", sentence)
        assert "rank 2" in sentence


@pytest.mark.parametrize(
    ("members", "numbering"), [([0, 1], ""), ([4, 6], " (whose ranks from 0 on are the world's 4, 6)")]
)
def test_ranks_of_a_lane_are_told_from_those_of_the_world(
    monkeypatch: pytest.MonkeyPatch, members: list[int], numbering: str
) -> None:
    from syntony.overlap.run import plan_runner

    monkeypatch.setattr(plan_runner.dist, "get_process_group_ranks", lambda group: members)
    assert plan_runner._numbering(None) == numbering  # type: ignore[arg-type]
