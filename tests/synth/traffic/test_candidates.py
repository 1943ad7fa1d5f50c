"""Placements of jobs are ranked by what of their demand fits on the links that they share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.synth.traffic.candidates import ranked
from syntony.synth.traffic.choice import Choice
from syntony.synth.traffic.job import Job
from syntony.synth.traffic.run import run
from tests.synth.traffic.test_interleave import talker, wires


def placed(job: Job, src: int, dst: int, lane: int) -> tuple[int, int]:
    return talker(job.name, src, dst, 1.0, 1.0, lane).members


def test_of_two_partners_the_one_that_leaves_room_is_taken() -> None:
    """Job a talks half of the time, b for 0.7 of the same period, c for 0.4: beside c there is room for all of a."""
    line = wires(3)
    a = talker("a", 0, 1, 0.5, 0.5, 0)
    b, c = talker("b", 0, 1, 0.7, 0.3, 1), talker("c", 1, 2, 0.4, 0.6, 2)
    places = [[a.members, placed(a, 1, 2, 0), placed(a, 2, 3, 0)], [b.members], [c.members]]
    found = ranked(line, [a, b, c], places, Choice("single"))
    assert [one.jobs[0].members for one in found] == [places[0][1], places[0][2], places[0][0]]
    # Nothing is over capacity beside c or alone; beside b, 0.2 of the circle asks for twice as much as there is.
    assert [one.score for one in found] == pytest.approx([1.0, 1.0, 0.8], abs=0.01)
    times = [
        run(line, one.jobs, Choice("single"), one.shifts.shifts).iteration_seconds(0) for one in (found[0], found[2])
    ]
    assert times[0] == pytest.approx(1.0, rel=0.01)
    assert times[1] > 1.15


def test_no_two_jobs_share_a_rank() -> None:
    line = wires(1)
    a, b = talker("a", 0, 1, 0.5, 0.5, 0), talker("b", 0, 1, 0.5, 0.5, 1)
    both = [a.members, b.members]
    found = ranked(line, [a, b], [both, both], Choice("single"))
    assert [tuple(job.members for job in one.jobs) for one in found] == [tuple(both), tuple(both[::-1])]
    with pytest.raises(UserError, match="there is no way to place all of them"):
        ranked(line, [a, b], [[a.members], [a.members]], Choice("single"))
    with pytest.raises(UserError, match="more than 200 ways"):
        ranked(line, [a], [[a.members] * 201], Choice("single"))


FILE = """
topology = "clos:leaves=2,hosts=4,spines=1,oversubscription=4"
paths = "single"
interleave = true
[[job]]
name = "a"
members = "0-1,4-5"
candidates = ["0-3"]
pattern = "all_reduce:ring"
size = "64M"
compute = "10ms"
iterations = 4
[[job]]
name = "b"
members = "2-3,6-7"
candidates = ["4-7"]
pattern = "all_reduce:ring"
size = "64M"
compute = "10ms"
iterations = 4
"""


def test_jobs_go_where_they_do_not_meet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(FILE)
    assert main(["traffic", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["placements"][0] == {"score": 1.0, "members": [[0, 1, 2, 3], [4, 5, 6, 7]]}
    assert len(report["placements"]) == 2  # in the other two, jobs share ranks
    assert report["placements"][1]["score"] < 0.99
    assert main(["traffic", str(path)]) == 0
    assert "2 placements, by how well jobs interleave there" in (said := capsys.readouterr().out)
    assert "2-3,6-7" in said


@pytest.mark.parametrize(
    ("value", "why"),
    [('"0-3"', "it must be a list of what members can be"), ('["0-1"]', "2 ranks, but the job has 4 members"),
     ('["0-8"]', "8 is not a rank")],
)  # fmt: skip
def test_candidates_that_cannot_be(value: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(FILE.replace('["0-3"]', value))
    assert main(["traffic", str(path)]) == 2
    assert why in capsys.readouterr().err
