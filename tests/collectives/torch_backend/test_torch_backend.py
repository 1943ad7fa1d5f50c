"""The torch backend: every call against a reference, bad arguments, faults, and the ends of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.running import HERE, ROOT, launch

pytest.importorskip("torch.distributed")

CASES = HERE / "torch_backend" / "torch_cases.py"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_call_against_a_reference(ranks: int) -> None:
    done = launch(ranks, HERE / "differential.py")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stderr.count("everything as the reference has it") == ranks


HARMLESS = (
    "bad_arguments",
    "groups_come_and_go",
    "sub_groups_and_threads",
    "callbacks_that_wait",
    "memory_after_a_wait",
    "profiler",
    "schedule_from_a_file",
    "split_of_the_backend",
    "memory_to_share",
    "the_whole_surface",
    "synchronous_calls",
    "names_of_devices",
    "timing_and_hooks",  # last: a hook stays with its group
)
"""They leave the group as it was, so that the same ranks go on with the next."""


def test_calls_that_leave_the_group_as_it_was(tmp_path: Path) -> None:
    done = launch(4, CASES, ",".join(HARMLESS), CASE_FOLDER=str(tmp_path), PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr[-3000:]
    for case in HARMLESS:
        assert done.stdout.count(f"{case}, rank") == 4, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize(
    "case",
    [
        "mismatched_counts",
        "mismatched_dtypes",
        pytest.param("killed", marks=pytest.mark.alone),  # within a second
        "interrupted",
        "timeout",
        "absent_at_creation",
        "the_state_after_a_failure",
        "exit_without_destroy",
        "exit_in_flight",
        "data_loader_workers",
        "proofs_at_creation",
        "shrunk_by_torch",
        "killed_and_shrunk",
        "late_for_a_monitored_barrier",
        "detail_mode",
    ],
)
def test_faults_and_ends(case: str, tmp_path: Path) -> None:
    environment = {"CASE_FOLDER": str(tmp_path), "PYTHONPATH": str(ROOT)}
    if case == "proofs_at_creation":
        environment["SYNTONY_CHECK"] = "1"
    if case == "detail_mode":
        environment["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    done = launch(4, CASES, case, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("as it should be") == (3 if case.startswith("killed") else 4), (
        done.stdout + done.stderr[-2000:]
    )
