"""The examples of the DSL, run by the real runtime and compared with NumPy bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony import Communicator
from syntony.synth.dsl.script import algorithm_of
from tests.collectives.ranks import on_ranks
from tests.collectives.test_schedules import COUNTS, execute

EXAMPLES = Path(__file__).parents[2] / "src/syntony" / "synth" / "dsl" / "examples"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    made = algorithm_of(str(script))
    path = tmp_path / "program.json"
    made.save(path)

    def job(group: Communicator) -> None:
        name = group.load(path)
        for count in COUNTS:
            execute(group, made.kind, name, count)

    on_ranks(made.ranks, job)
