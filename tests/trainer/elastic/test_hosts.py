"""Four emulated hosts, one of which is lost: the others go on without a disk, in the bits of a run left alone."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import typing
from pathlib import Path

import pytest

from tests.trainer.elastic.going_on_script import TOML
from tests.trainer.elastic.test_going_on import losses

pytest.importorskip("torch.distributed")
ROOT = Path(__file__).parents[3]
HYBRID = ["parallel.dp=4", "parallel.zero=2", "parallel.replicas=2"]


def said(command: list[str]) -> list[tuple[float, str]]:
    """Every line, and when it came."""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines = [(time.monotonic(), line.rstrip().rpartition("| ")[2]) for line in process.stdout]
    if process.returncode == 2 and command[3] == "lab":
        pytest.skip(f"no lab here: {lines}")
    assert process.returncode == 0, "\n".join(line for _, line in lines)[-3000:]
    return lines


@pytest.mark.parametrize(
    ("steps", "last"), [pytest.param(12, 6, marks=pytest.mark.sweep), pytest.param(200, 100, marks=pytest.mark.soak)]
)
@pytest.mark.alone
def test_one_of_four_hosts_is_lost(steps: int, last: int, tmp_path: Path) -> None:
    toml, text = tmp_path / "small.toml", shutil.copy(typing.__file__, tmp_path / "text.py")
    toml.write_text(TOML.format(text=text))

    def words(*settings: str) -> list[str]:
        return [str(toml), *(word for setting in (f"run.steps={steps}", *settings) for word in ("--set", setting))]

    syntony = [sys.executable, "-m", "syntony"]
    alone = [line for _, line in said([*syntony, "train", *words("elastic.copies=0")])]
    lab = [*syntony, "lab", "star:4", "--rate", "1gbit", "--no-ceilings", "--"]
    rank = [sys.executable, "-m", "tests.trainer.elastic.hosts_script", "3", str(last), *words(*HYBRID)]
    # The lab ends all when one fails: a shell stands between, as a host's agent would.
    lines = said([*lab, "sh", "-c", '"$@"; true', "sh", *rank])
    told = [line for _, line in lines]
    (lost,) = (number for number, line in enumerate(told) if re.match(r"rank 3 of 4 lost; \d go on from step", line))
    before = max(moment for moment, line in lines[:lost] if line.startswith("step"))
    after = next(moment for moment, line in lines[lost:] if line.startswith("step"))
    print(f"{told[lost]}: {after - before:.2f} s from the last step before to the first one after")
    assert losses(told).items() <= losses(alone).items()
    assert len(losses(told)) == steps
    assert told[-1].split()[-1] == alone[-1].split()[-1], told[-1]
