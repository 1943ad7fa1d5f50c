"""The torch backend on tensors that are not the CPU's, by way of the host's memory, on a device that is late."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.running import ROOT, launch

pytest.importorskip("torch.distributed")

from tests.collectives.torch_backend.device.device_cases import CASES, ENDS_THE_GROUP
from tests.programs import program

SCRIPT = Path(__file__).parent / "device_cases.py"
ONLY_ON_GPUS = {"sharded"}  # FSDP2 asks more of a device than the late one has
RANKS = {
    "every_call": (2, 3, 4),
    "messages": (2, 4),
    "killed": (3,),
    "shrunk": (3,),
    "data_parallel": (2,),
    "trained_alike": (2,),
}


def run(names: list[str], ranks: int) -> None:
    library = program("late_device.so")
    done = launch(ranks, SCRIPT, ",".join(names), DEVICE="late", LATE_DEVICE=str(library), PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    for name in names:
        living = ranks - (name in ("killed", "shrunk"))
        assert done.stdout.count(f"{name}, rank") == living, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("ranks", "rest"),
    [(2, False), (3, False), *(pytest.param(*which, marks=pytest.mark.sweep) for which in ((2, True), (4, False)))],
)
def test_on_a_late_device(ranks: int, rest: bool) -> None:
    """Whatever leaves the group as it was: all on the same ranks. What three ranks run, two run seldom (`rest`)."""
    cases = CASES.keys() - ENDS_THE_GROUP - ONLY_ON_GPUS
    able = [case for case in CASES if case in cases and ranks in RANKS.get(case, (2, 3))]
    run([case for case in able if ranks != 2 or (3 in RANKS.get(case, (2, 3))) == rest], ranks)


@pytest.mark.parametrize(
    ("case", "ranks"), [(case, n) for case in sorted(ENDS_THE_GROUP) for n in RANKS.get(case, (2, 3))]
)
def test_an_end_on_a_late_device(case: str, ranks: int) -> None:
    run([case], ranks)
