"""A placement's file says which rank of the run each process is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch.distributed")

import torch.distributed as dist

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import Exchange, run_ranks
from syntony.overlap.step.layout import Parallel
from syntony.overlap.step.ranks import members
from syntony.trainer.config import Config, Run
from syntony.trainer.run.loop import _group
from syntony.trainer.run.placement import ranks_of


def test_axes_lie_where_the_file_has_them(tmp_path: Path) -> None:
    """Two boxes of four: the four ranks that sum gradients are a box's, though tp is innermost in a run."""
    path = tmp_path / "placed.json"
    words = ["place", "rail:boxes=2,gpus=4,rails=1", "--axes", "dp4xtp2", "--size", "256M", "-o", str(path)]
    assert main(words) == 0
    layout = Parallel(dp=4, tp=2)
    ranks = ranks_of(str(path), layout)
    started = np.argsort(ranks)  # by rank of the run
    assert ranks != list(range(8))
    assert sorted(sorted(started[group].tolist()) for group in members(layout, "dp")[0]) == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        ([{"dp": 0}, {"dp": 0}], "does not place each rank"),
        ([{"dp": 0}], "does not place each rank"),
        ([{"dp": 0}, {"dp": 2}], "not a place among"),
        ([{"dp": 0}, {"dp": 1, "ep": 0}], "not a place among"),
        ([0, 1], "not a place among"),
        (None, "does not place each rank"),
    ],
)
def test_what_is_no_placement(ranks: object, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "placed.json"
    path.write_text(json.dumps({"ranks": ranks}))
    with pytest.raises(UserError, match=sentence):
        ranks_of(str(path), Parallel(dp=2))


def test_processes_are_the_ranks_that_the_file_says(tmp_path: Path) -> None:
    path = tmp_path / "placed.json"
    path.write_text(json.dumps({"ranks": [{"dp": dp, "tp": tp} for tp in range(2) for dp in range(2)]}))
    config = Config(parallel=Parallel(dp=2, tp=2), run=Run(backend="gloo", placement=str(path)))

    def work(exchange: Exchange) -> int:
        with _group(config, exchange) as rank:
            assert rank == dist.get_rank() == [0, 2, 1, 3][exchange.rank]
        return 0

    assert run_ranks(4, work, 60.0) == 0
