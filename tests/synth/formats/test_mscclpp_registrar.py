"""`syntony export mscclpp`: plans, and the script that registers them, run beside a stand-in for mscclpp."""

from __future__ import annotations

import json
import random
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import syntony
from syntony.__main__ import main
from syntony.synth.formats.schedule_file import write
from tests.synth.formats import plan_executor


class Builder:
    """What the script asks of MSCCL++'s AlgorithmCollectionBuilder."""

    def __init__(self) -> None:
        self.algorithms: list[dict[str, Any]] = []
        self.selector: Any = None

    def add_algorithm_builder(self, algorithm: dict[str, Any]) -> None:
        self.algorithms.append(algorithm)

    def set_algorithm_selector(self, selector: Any) -> None:
        self.selector = selector


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for kind in ("all_gather", "all_reduce"):
        write(syntony.synthesize("ring:4", kind, engine="bfb"), tmp_path / f"{kind}.json")
    words = [f"{tmp_path}/all_gather.json@64K-1M", f"{tmp_path}/all_reduce.json", "--ranks-per-node", "4"]
    assert main(["export", "mscclpp", *words, "-o", str(tmp_path / "plans")]) == 0
    return tmp_path / "plans"


def test_the_plans_are_right(folder: Path) -> None:
    for name in ("allgather-0.json", "allreduce-1.json"):
        assert syntony.verify(folder / name)
        plan_executor.run(json.loads((folder / name).read_text()), random.Random(name))


def test_the_script_registers_and_selects(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder()
    fake, ext = ModuleType("mscclpp"), ModuleType("mscclpp.ext")
    ext.AlgorithmCollectionBuilder = lambda: builder  # type: ignore[attr-defined]
    fake.ext = ext  # type: ignore[attr-defined]
    fake.ExecutionPlan = lambda path, rank: (Path(path).name, rank)  # type: ignore[attr-defined]

    class Algorithm(dict):  # type: ignore[type-arg]
        Constraint = staticmethod(lambda world, node: (world, node))

    fake.Algorithm = Algorithm  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mscclpp", fake)
    monkeypatch.setitem(sys.modules, "mscclpp.ext", ext)
    script = runpy.run_path(str(folder / "register_plans.py"))
    script["register"](3)
    assert [one["execution_plan"] for one in builder.algorithms] == [("allgather-0.json", 3), ("allreduce-1.json", 3)]
    assert {one["constraint"] for one in builder.algorithms} == {(4, 4)}
    names = {json.loads((folder / plan["file"]).read_text())["name"] for plan in script["PLANS"]}
    assert names == {one["id"] for one in builder.algorithms}

    known = {"allgather": {"syntony_allgather_0": "A"}, "allreduce": {"syntony_allreduce_1": "R"}}

    def chosen(collective: str, size: int, **other: int) -> Any:
        request = {"world_size": 4, "n_ranks_per_node": 4, "input_buffer": 1, "output_buffer": 2} | other
        return builder.selector(known, SimpleNamespace(collective=collective, message_size=size, **request))

    assert chosen("allgather", 64 << 10) == "A"
    assert chosen("allgather", 1 << 20) == "A"
    assert chosen("allgather", (1 << 20) + 1) is None
    assert chosen("allreduce", 7) == "R"
    assert chosen("allreduce", 7, world_size=8) is None
    assert chosen("allreduce", 7, output_buffer=1) is None
    assert chosen("broadcast", 7) is None


def test_a_range_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(syntony.synthesize("ring:4", "all_gather", engine="bfb"), tmp_path / "a.json")
    assert main(["export", "mscclpp", f"{tmp_path}/a.json@lots", "-o", str(tmp_path / "plans")]) == 2
    assert "is not a range of sizes such as 64K-1M" in capsys.readouterr().err
