"""ddp_hook: an unmodified DDP loop gives the same bits under any policy, clipping and tied weights included."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.running import launch

pytest.importorskip("torch.distributed")

SCRIPT = Path(__file__).with_name("ddp_script.py")


@pytest.mark.parametrize(
    ("backend", "policy", "clip"),
    [("syntony", "need", 0.0), ("syntony", "bytescheduler", 0.1), ("gloo", "p3", 0.0), ("syntony", "fifo", 0.1)],
)
def test_the_same_bits_as_ddp(backend: str, policy: str, clip: float) -> None:
    done = launch(2, SCRIPT, backend, policy, clip)
    assert done.stdout.count("passed") == 2, f"{done.stdout}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize(
    ("policy", "why"), [("dear", "DDP offers all_reduce only"), ("ooo_backprop", "apart, and autograd with its layer")]
)
def test_a_policy_that_ddp_cannot_follow_is_refused(policy: str, why: str) -> None:
    done = launch(2, SCRIPT, "syntony", policy, 0.0)
    assert "passed" not in done.stdout
    assert why in done.stderr
