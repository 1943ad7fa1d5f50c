"""Groups made out of groups: split, and shrink after deaths, in real processes over shared memory and TCP."""

from __future__ import annotations

import pytest

from tests import forked
from tests.collectives import regroup_cases


@pytest.mark.parametrize(
    ("case", "hosts", "victim"),
    [
        ("split", "one", 0),
        ("split", "two", 0),
        ("killed", "one", 2),
        ("killed", "one", 0),
        ("killed", "each", 3),
        ("killed", "each", 0),
        ("killed", "two", 0),
        ("killed_one_after_another", "one", 0),
        ("killed_one_after_another", "each", 1),
        ("excluded", "one", 0),
        ("excluded", "each", 3),
        ("excluded_by_one", "two", 1),
        ("late", "one", 2),
        ("late", "each", 0),
    ],
)
def test_groups_out_of_groups(case: str, hosts: str, victim: int) -> None:
    done = forked.run(regroup_cases.main, case, 4, hosts, victim)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
