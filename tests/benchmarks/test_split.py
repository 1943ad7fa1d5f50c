"""`syntony bench --split`: groups that measure at the same time."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.benchmarks.bench.split import Part, Split, read
from tests.benchmarks.test_bench_command import results, run


class Everybody:
    """An exchange of which only one rank is here: the others' blobs are their numbers."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        return [blob if rank == self.rank else str(rank).encode() for rank in range(self.size)]


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("DIV 2", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("div:4", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("MOD 2", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("AND 0x3", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("OR 6", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ],
)
def test_ranks_of_one_color_are_a_group(text: str, groups: list[list[int]]) -> None:
    split = read(text, {"NCCL_TESTS_SPLIT": "MOD 3"})
    assert split is not None
    for members in groups:
        for place, rank in enumerate(members):
            part = Part(Everybody(rank, 8), split)
            assert (part.rank, part.size) == (place, len(members))
            assert part.all_gather("a", str(rank).encode()) == [str(member).encode() for member in members]
    assert len({split.color(members[0]) for members in groups}) == len(groups)


def test_variables_of_nccl_tests_are_read() -> None:
    assert read(None, {}) is None
    assert read(None, {"NCCL_TESTS_SPLIT_MASK": "0x0"}) is None  # how scripts say that there is one group
    assert read(None, {"NCCL_TESTS_SPLIT": "MOD 8"}) == Split("MOD", 8)
    assert read(None, {"NCCL_TESTS_SPLIT_MASK": "0x7", "NCCL_TESTS_SPLIT": "MOD 3"}) == Split("AND", 7)
    assert read(None, {"NCCL_TESTS_SPLIT_MASK": "10"}) == Split("AND", 16)  # hexadecimal in any case


@pytest.mark.parametrize("text", ["", "2", "XOR 2", "DIV", "DIV 0", "MOD 0", "DIV -1", "DIV two", "AND -1"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="should be AND, OR, MOD or DIV and a number"):
        read(text, {})


def test_groups_must_be_equal() -> None:
    with pytest.raises(UserError, match="MOD 2 makes groups of 1 and of 2 ranks"):
        Part(Everybody(0, 3), Split("MOD", 2))


def test_two_groups_beside_gloo(tmp_path: Path) -> None:
    """Groups of two: had all four ranks summed, the check would fail."""
    words = ("bench", "all_reduce", "all_gather", "-b", "8", "-e", "64K", "-f", "64", "-n", "2")
    done = run(*words, "--ranks", "4", "--split", "MOD 2", "--peers", "gloo", "--csv", str(tmp_path / "f.csv"))
    assert done.returncode == 0, done.stderr
    assert [line.split()[4] for line in done.stdout.splitlines() if "Group" in line] == ["0", "1", "0", "1"] * 2
    assert "2 groups of 2 ranks at the same time: --split MOD 2" in done.stdout
    rows = [line.split(",") for line in (tmp_path / "f.all_gather.csv").read_text().splitlines()[1:]]
    assert rows
    assert {row[6] for row in rows} == {"2"}


def test_a_split_of_the_environment() -> None:
    words = ("bench", "reduce_scatter", "-b", "1K", "-n", "2", "--ranks", "4", "--json")
    (row,) = results(run(*words, NCCL_TESTS_SPLIT="DIV 2"))
    assert row["count"] == 128  # of 256 elements in all: each of two ranks has half


def test_ranks_on_gpus_are_one_group() -> None:
    done = run("bench", "all_reduce", "--device", "cuda", "--split", "DIV 2")
    assert done.returncode == 2
    assert "--split is for --device cpu" in done.stderr
