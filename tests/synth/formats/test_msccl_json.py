"""Algorithms of msccl-tools: read as Schedules, written from them, proven both ways."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syntony.__main__ import main
from syntony.base.files.fields import FileError
from syntony.synth.checker import check_schedule
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.formats import schedule_file
from syntony.synth.formats.loading import load, verify
from syntony.synth.formats.msccl.json_export import msccl_json_text
from syntony.synth.formats.msccl.json_file import read_msccl_json
from syntony.synth.model.collective import KINDS, Collective
from syntony.synth.model.target import TargetError
from syntony.synth.symmetry.groups import expand, fold
from syntony.topologies.parse import parse
from tests.synth.schedules import SCHEDULES, star_reduce

WRITTEN = ("ring all_gather", "chain all_reduce", "dgx1 all_gather", "ring all_reduce by dual", "switched all_gather")


def ring_all_gather() -> dict[str, Any]:
    """Three ranks, links of two chunks a round in one direction; one send that nobody needs."""
    chunks = [{"msccl_type": "chunk", "pre": [rank], "post": [0, 1, 2], "addr": rank} for rank in range(3)]
    steps = [[[rank, rank, (rank + 1) % 3] for rank in range(3)], [[(r - 1) % 3, r, (r + 1) % 3] for r in range(3)]]
    steps[1].append([0, 1, 2])
    return {
        "msccl_type": "algorithm",
        "name": "Allgather(n=3)-ring",
        "instance": {
            "msccl_type": "instance",
            "steps": 2,
            "extra_rounds": 0,
            "chunks": 1,
            "pipeline": None,
            "extra_memory": None,
            "allow_exchange": False,
        },
        "input_map": {},
        "output_map": {},
        "steps": [{"msccl_type": "step", "rounds": 1, "sends": sends} for sends in steps],
        "collective": {
            "msccl_type": "collective",
            "name": "Allgather(n=3)",
            "nodes": 3,
            "chunks": chunks,
            "triggers": {},
            "runtime_name": "allgather",
        },
        "topology": {
            "msccl_type": "topology",
            "name": "ring",
            "switches": [],
            "links": [[0, 0, 2], [2, 0, 0], [0, 2, 0]],
        },
    }


def test_an_algorithm_is_a_schedule() -> None:
    schedule = read_msccl_json(ring_all_gather(), "f")
    assert check_schedule(schedule).fault is None
    assert (schedule.collective.kind, schedule.steps, schedule.rounds.tolist()) == ("all_gather", 2, [2, 2])
    assert len(schedule.transfers) == 6  # the needless send is gone


def test_shared_limits_are_links() -> None:
    """All that leaves rank 0 shares one chunk a round: two sends take two rounds."""
    document = ring_all_gather()
    document["topology"] |= {"links": [[0, 2, 2], [2, 0, 2], [2, 2, 0]], "switches": [[[0], [1, 2], 1, "out"]]}
    document["steps"] = [{"rounds": 1, "sends": [[s, s, d] for s in range(3) for d in range(3) if s != d]}]
    verdict = check_schedule(read_msccl_json(document, "f"))
    assert "step 0" in (verdict.fault or "")
    document["steps"][0]["rounds"] = 2
    assert check_schedule(read_msccl_json(document, "f")).fault is None


@pytest.mark.parametrize("name", WRITTEN)
def test_schedules_go_out_and_come_back(name: str, tmp_path: Path) -> None:
    original = fold(SCHEDULES[name]())
    (tmp_path / "f.json").write_text(msccl_json_text(original))
    assert verify(tmp_path / "f.json").fault is None
    again = read_msccl_json(json.loads((tmp_path / "f.json").read_text()), "f")
    assert again.collective == original.collective
    assert len(again.transfers) == len(expand(original).transfers)
    assert check_schedule(read_msccl_json(json.loads(msccl_json_text(again)), "f")).fault is None
    assert load(tmp_path / "f.json").collective == original.collective.kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_collective(kind: str) -> None:
    topology = parse("torus:3x3")
    schedule = greedy(topology, Collective.make(kind, 9, 2), 1 << 20, Budget())
    again = read_msccl_json(json.loads(msccl_json_text(schedule)), "f")
    assert again.collective == schedule.collective
    assert check_schedule(again).fault is None


def test_weights_are_refused() -> None:
    with pytest.raises(TargetError, match="its chunks differ in weight"):
        msccl_json_text(star_reduce(4))


def at(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        place: Any = document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (at("steps", 0, "sends", 0, value=[0, 1, 0]), "steps[0].sends[0] is [0, 1, 0]; there is no link from 1 to 0"),
        (
            at("steps", 0, "sends", 0, value=[7, 0, 1]),
            "sends[0] is [7, 0, 1]; the collective has no address 7",
        ),
        (at("steps", 0, "sends", 0, value=[2, 0, 1]), "steps[0]: rank 0 sends chunk 2, which it does not hold by then"),
        (at("steps", 0, "rounds", value=0), "steps[0].rounds is 0; a step lasts at least 1 round"),
        (at("instance", "pipeline", value=2), "instance.pipeline is 2; steps of a Schedule do not overlap"),
        (at("topology", "links", 0, value=[1, 0, 2]), "the entry on the diagonal must be 0"),
        (at("topology", "switches", value=[[[0], [1], 0, "x"]]), "bandwidth above 0"),
        (at("collective", "chunks", 0, "post", value=[0]), "none of the eight collectives"),
        (at("collective", "triggers", value={"0": {"0": 1}}), "they are not supported"),
        (at("collective", "nodes", value=4), "collective"),
    ],
)
def test_malformed(edit: Callable[[dict[str, Any]], None], told: str) -> None:
    document = copy.deepcopy(ring_all_gather())
    edit(document)
    with pytest.raises(FileError) as error:
        read_msccl_json(document, "f")
    assert str(error.value).startswith("f: ")
    assert told in str(error.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schedule_file.write(SCHEDULES["dgx1 all_gather"](), tmp_path / "s.json")
    out, xml = tmp_path / "s.msccl.json", tmp_path / "s.xml"
    assert main(["convert", str(tmp_path / "s.json"), "--to", "msccl-json", "-o", str(out)]) == 0
    assert main(["convert", str(out), "--to", "msccl-xml", "-o", str(xml)]) == 0
    assert main(["convert", str(xml), "--to", "msccl-json", "-o", str(out), "--force"]) == 2
    assert "it is a program; .msccl.json files hold schedules only" in capsys.readouterr().err
