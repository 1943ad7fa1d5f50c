"""Jobs files and the verb `syntony traffic`: what they say, and the sentence for everything that is wrong."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.synth.formats.jobs_file import EXAMPLE, parse_jobs, read_jobs
from syntony.synth.traffic.choice import Choice
from syntony.topologies import parse
from syntony.topologies.drawing.heat_map import colour, heat_map

HEAD = 'topology = "star:4"\n'
JOB = '[[job]]\npattern = "all_reduce:ring"\nsize = "1M"\n'


def test_the_example_says_what_it_says() -> None:
    found = parse_jobs(EXAMPLE, Path("example"))
    assert found.topology.ranks == 8
    assert (found.choice, found.interleave) == (Choice("ecmp", 1, 2), True)
    vision, language = found.jobs
    assert (vision.name, vision.members, vision.iterations) == ("vision", (0, 1, 4, 5), 6)
    assert (language.compute, language.start) == (0.12, 0.0)
    assert vision.messages.bytes.sum() == 2 * 3 * (64 << 20)


def test_members_in_every_spelling() -> None:
    for text, ranks in (
        ("[3, 1]", (3, 1)), ('"2-3,0"', (2, 3, 0)), ('"0-3:2"', (0, 2)), ('"1, 2"', (1, 2)),
    ):  # fmt: skip
        assert parse_jobs(f"{HEAD}{JOB}members = {text}\n", Path("f")).jobs[0].members == ranks
    assert parse_jobs(HEAD + JOB, Path("f")).jobs[0].members == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("topology = \n", "not TOML: .*line 1"),
        (JOB, 'it has no "topology"'),
        (HEAD, 'it has no "job"'),
        ('topology = "sta:4"\n' + JOB, r'line 1: topology is "sta:4": unknown topology .sta.'),
        ("topology = 4\n" + JOB, "line 1: topology is 4: it must be text in quotes"),
        (HEAD + 'paths = "ecpm"\n' + JOB, r'line 2: paths is "ecpm": .*it must be single, ecmp, e-ecmp:K'),
        (HEAD + "seed = -1\n" + JOB, "line 2: seed is -1: it must be a whole number from 0"),
        (HEAD + "interleave = 1\n" + JOB, "line 2: interleave is 1: it must be true or false"),
        (
            HEAD + "\npath = 1\n" + JOB,
            "line 3: path is 1: there is no such field; the fields are interleave, job, paths",
        ),
        (HEAD + "job = 3\n", "line 2: job is 3: jobs are tables that begin with"),
        (HEAD + "[[job]]\nsize = 1\n", "line 2: job 0: a job has either a pattern or a schedule"),
        (HEAD + JOB + 'schedule = "x"\n', "line 2: job 0: a job has either a pattern or a schedule"),
        (HEAD + '[[job]]\npattern = "all_reduce:ring"\n', 'line 2: job 0: it has no "size"'),
        (
            HEAD + JOB + "members = [0, 4]\n",
            "line 5: job 0: members is given: 4 is not a rank of star:4; its ranks are 0 to 3",
        ),
        (HEAD + JOB + 'members = "0-x"\n', r'line 5: job 0: members is "0-x": "0-x" is not a rank or a range'),
        (HEAD + JOB + "members = [1, 1]\n", "line 5: job 0: members is given: a rank is listed twice"),
        (HEAD + JOB + "members = [1]\n", "line 3: job 0: pattern is .* 1 member; a pattern is between at least 2"),
        (
            HEAD + JOB + JOB + 'compute = "3 weeks"\n',
            'line 8: job 1: compute is "3 weeks": it must be a number of seconds',
        ),
        (HEAD + JOB + "start = -1\n", "line 5: job 0: start is -1: it must be a number of seconds"),
        (HEAD + JOB + "iterations = 0\n", "line 5: job 0: iterations is 0: it must be a whole number from 1 to"),
        (
            HEAD + '[[job]]\npattern = "all_reduce:ring"\nsize = "1X"\n',
            "line 4: job 0: size is \"1X\": '1X' is not a size",
        ),
        (HEAD + '[[job]]\npattern = "ring"\nsize = 8\n', "line 3: job 0: pattern is \"ring\": no pattern 'ring'"),
        (HEAD + '[[job]]\nschedule = "none.json"\nsize = 8\n', "line 3: job 0: schedule is .* cannot be read"),
        (HEAD + JOB + 'name = "a"\n' + JOB + 'name = "a"\n', 'line 9: job 1: name is "a": another job has it'),
        (HEAD + JOB + "speed = 2\n", "line 5: job 0: speed is 2: there is no such field; the fields are candidates"),
    ],
)
def test_refusals_name_file_line_and_field(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=why) as refused:
        read_jobs(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)


def test_example_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace, heat = tmp_path / "trace.json", tmp_path / "heat.svg"
    told = answer(capsys, "traffic", "example", "--trace", str(trace), "--heat-map", str(heat), "--json")
    vision, language = told["jobs"]
    for job in (vision, language):  # they collide on a spine; shifts take them apart
        assert job["interleaved"]["iteration_seconds"] < 0.75 * job["iteration_seconds"]
        assert len(job["iterations"]) == 6
    assert language["interleaved"]["shift"] > 0
    assert told["interleaved_seconds"] < told["seconds"]
    assert "shared by 2 messages" in told["critical_path"][0]
    assert max(link["utilization"] for link in told["links"]) <= 1
    assert all(shared["excess"] < shared["before"] for shared in told["shared_links"])
    assert ElementTree.fromstring(heat.read_text()).tag.endswith("svg")
    check_trace(json.loads(trace.read_text())["traceEvents"])


def check_trace(events: list[dict[str, Any]]) -> None:
    """Rows of a job do not overlap, every row and process has a name, and curves come back to nothing."""
    rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    named = {(event["pid"], event.get("tid")) for event in events if event["ph"] == "M"}
    last: dict[str, float] = {}
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "C":
            last[event["name"]] = event["args"]["bytes/s"]
    assert set(rows) <= named
    assert {pid for pid, tid in named if tid is None} == {0, 1, 2}
    for boxes in rows.values():
        boxes.sort()
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(boxes))
    assert last
    assert set(last.values()) == {0.0}


def test_stories_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["traffic", "example", "--paths", "spray", "--no-interleave", "--top", "2"]) == 0
    told = capsys.readouterr().out
    assert "2 jobs on clos:" in told
    assert "paths spray" in told
    assert "interleaved" not in told
    assert told.count(" -> ") >= 2
    hashed = [answer(capsys, "traffic", "example", "--seed", str(seed), "--no-interleave", "--json") for seed in (1, 2)]
    assert hashed[0]["seconds"] != hashed[1]["seconds"]  # found by trying
    assert hashed[0]["seed"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["none.toml"], "none.toml: cannot be read"),
        (["example", "--paths", "fast"], "paths 'fast': it must be single"),
        (["example", "--seed", "-1"], "--seed"),
        (["example", "--heat-map", "/no/such/folder/h.svg"], "there is no folder /no/such/folder"),
    ],
)
def test_bad_words_exit_with_2(words: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["traffic", *words])
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 2
    assert why in capsys.readouterr().err


def test_schedules_as_jobs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A schedule made for a ring, on other wires; a relative path is beside the jobs file."""
    assert main(["synth", "ring:4", "all_gather", "--engine", "greedy", "-o", str(tmp_path / "s.json")]) == 0
    capsys.readouterr()
    text = 'topology = "star:8"\n[[job]]\nmembers = "4-7"\nschedule = "s.json"\nsize = "4M"\n'
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    told = answer(capsys, "traffic", str(path), "--json")
    assert told["seconds"] >= 3 * (4 << 20) / 4 / 1e9
    assert sum(link["bytes"] for link in told["links"]) == 2 * 4 * 3 * (1 << 20)  # two links a message
    path.write_text(text.replace("4-7", "4-6"))
    assert main(["traffic", str(path)]) == 2
    assert "line 4: job 0: schedule is" in (said := capsys.readouterr().err)
    assert "it is for 4 ranks, but the job has 3 members" in said


def test_help_shows_a_jobs_file_and_the_patterns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["traffic", "--help"])
    told = capsys.readouterr().out
    assert all(f"  {line}" in told for line in EXAMPLE.splitlines() if line)
    assert "parameter-server:SERVERS" in told


def test_heat_maps_colour_each_direction() -> None:
    topology = parse("ring:5")
    use = [0.0] * len(topology.links)
    use[0] = 1.0
    root = ElementTree.fromstring(heat_map(topology, use, "ring & co"))
    lines = [path for path in root.iter("{http://www.w3.org/2000/svg}path") if len(path)]
    assert len(lines) == len(topology.links)  # half a line per direction
    hot = [path for path in lines if path.attrib["stroke"] == colour(1.0)]
    assert [path[0].text for path in hot] == ["rank0 -> rank1: 100.0% of 1 GB/s"]
    assert lines[-1] is hot[0]  # on top of the others


def test_colours_go_from_cold_to_hot() -> None:
    scale = [colour(step / 100) for step in range(101)]
    assert len(set(scale)) > 90
    assert colour(-1.0) == scale[0]
    assert colour(2.0) == scale[100]
