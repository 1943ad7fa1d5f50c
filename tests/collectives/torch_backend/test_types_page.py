"""docs/torch_backend.md: its table of types says what the backend takes and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.collectives.running import launch

pytest.importorskip("torch")

PAGE = Path(__file__).parents[3] / "docs" / "torch_backend.md"

SCRIPT = """
import json, sys
import torch
import torch.distributed as dist

dist.init_process_group("syntony", store=dist.HashStore(), rank=0, world_size=1)
taken = {}
for dtype in json.loads(sys.argv[1]):
    taken[dtype] = []
    for op in json.loads(sys.argv[2]):
        tensor = torch.zeros(16, dtype=torch.uint8).view(getattr(torch, dtype))
        try:
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, op))
        except (RuntimeError, ValueError):
            continue
        taken[dtype].append(op)
    dist.broadcast(torch.zeros(16, dtype=torch.uint8).view(getattr(torch, dtype)), 0)
dist.destroy_process_group()
print(json.dumps(taken))
"""


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| ").split(" | ")]


def test_the_table_says_what_is_taken(tmp_path: Path) -> None:
    section = PAGE.read_text().split("## Types")[1].split("\n## ")[0]
    head, _, *rows = [cells(line) for line in section.splitlines() if line.startswith("|")]
    columns = [re.findall(r"`(\w+)`", cell) for cell in head[1:]]
    promised = {
        dtype: [op for ops, answer in zip(columns, row[1:], strict=True) if answer == "yes" for op in ops]
        for row in rows
        for dtype in re.findall(r"`(\w+)`", row[0])
    }
    assert len(promised) == 21
    operations = [op for ops in columns for op in ops]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = launch(1, script, json.dumps(list(promised)), json.dumps(operations))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == promised
