"""The examples: short, proven on several sizes, run in random orders, simulated, exported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from syntony.synth.checker import check_program
from syntony.synth.dsl import Algorithm
from syntony.synth.dsl.script import algorithm_of
from syntony.synth.formats.msccl.xml_export import msccl_xml_text
from syntony.synth.formats.msccl.xml_file import read_msccl_xml
from syntony.synth.model.target import MSCCL
from syntony.synth.simulation.program_simulator import simulate_program
from syntony.topologies.parse import parse
from tests.synth.lowering.passes.outcome import same_outcome

EXAMPLES = Path(__file__).parents[3] / "src/syntony" / "synth" / "dsl" / "examples"
SIZES = {
    "all_pairs": (2, 3, 6),
    "double_tree": (2, 3, 7, 8),
    "hierarchical": (4, 8),
    "hypercube": (2, 4, 8),
    "ring": (2, 3, 5, 8),
    "two_step_all_to_all": (2, 4, 6),
}


def example(name: str) -> Algorithm:
    return algorithm_of(str(EXAMPLES / f"{name}.py"))


def test_all_examples_are_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_examples(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 25
    for ranks in SIZES[name]:
        for instances in (1, 2):
            written = example(name).as_written(ranks, instances=instances)
            found = example(name).program(ranks, instances=instances)
            same_outcome(written, found)
            assert simulate_program(found, parse(f"full:{ranks}"), 1 << 20).seconds > 0


@pytest.mark.parametrize("name", SIZES)
def test_examples_as_msccl_xml(name: str, tmp_path: Path) -> None:
    path = tmp_path / "out.xml"
    path.write_text(msccl_xml_text(example(name).program()))
    assert check_program(read_msccl_xml(path), MSCCL.fifo_depth)


def test_an_example_runs_directly() -> None:
    result = subprocess.run([sys.executable, EXAMPLES / "ring.py"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "recv_reduce" in result.stdout
