"""Bad nights under torchrun: a rank that hangs is named by all there is to ask; one that is killed comes back."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from syntony.__main__ import main
from tests.collectives.recorder.test_recorder import torchfrtrace
from tests.collectives.running import torchrun

pytest.importorskip("torch.distributed")

STUCK = """
import time
from datetime import timedelta
import torch, torch.distributed as dist

dist.init_process_group("syntony")
dist.barrier()
dist.group.WORLD.set_timeout(timedelta(seconds=2))
for step in range(5):
    if step == 3 and dist.get_rank() == 2:
        while True:  # a data loader that never returns, say
            time.sleep(0.01)
    dist.all_reduce(torch.ones(1000))
"""

KILLED = """
import os, signal, sys
import torch, torch.distributed as dist

first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if first:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun must not end a survivor before that has said why it ends
dist.init_process_group("syntony")
total = torch.zeros(1)
for step in range(100):
    if first and step == 50 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.full((1000,), float(step))
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        raise
    total += tensor[0]
assert total.item() == 2 * sum(range(100))
dist.destroy_process_group()
print(f"finished: rank {os.environ['RANK']}", flush=True)
"""


@pytest.mark.skipif(
    not any(entry.name == "syntony" for entry in metadata.entry_points(group="torch.backends")),
    reason="syntony is not installed (make build), so torch cannot find it by itself",
)
@pytest.mark.alone  # a time-out of two seconds
def test_a_stuck_rank_is_named_by_errors_records_and_torchs_analyzer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 2 loops without end before its fourth all_reduce. It leaves a record, too: not its own thread writes it."""
    script, records = tmp_path / "stuck.py", tmp_path / "records"
    script.write_text(STUCK)
    records.mkdir()
    done = torchrun(3, script, fresh=True, timeout=280, SYNTONY_TRACE_DIR=str(records))
    assert done.returncode != 0
    said = re.findall(
        r"all_reduce #5 .+ timed out after \S+ s on rank \d+; rank 2 \(process \d+ on \S+\) has not .+", done.stderr
    )
    assert said, done.stderr[-3000:]
    assert "(its last: all_reduce #4 (sum of 1000 x float32))" in said[0]

    assert main(["trace", str(records)]) == 1
    told = capsys.readouterr().out
    assert "3 ranks, " in told
    assert re.search(r"ended because all_reduce #5 .+ timed out .+ rank 2 .+ has not started it", told)
    assert "rank 2 is after all_reduce #4, all others are stopped in all_reduce #5" in told

    (analysis,) = torchfrtrace([records])
    assert "Not all ranks joining collective, sequence number: 5" in analysis
    assert "missing ranks: {2}" in analysis


def test_torchrun_restarts_a_job_whose_rank_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    done = torchrun(2, "--max-restarts=1", script, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(re.findall(r"finished: rank (\d)", done.stdout)) == ["0", "1"]
    assert re.search(r"rank 1 \(process \d+ on \S+\) died", done.stderr), done.stderr[-3000:]
