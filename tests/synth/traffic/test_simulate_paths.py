"""`syntony simulate` with --paths, --explain and --heat-map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from syntony.__main__ import main

BUILDER = ("simulate", "builder:direct:all_to_all", "--topology", "clos:leaves=2,hosts=4,spines=4", "--size", "64M")


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_paths_of_a_builder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Uplinks are as fast together as the hosts below; one spine alone is a quarter of that."""
    size, cross = 64 << 20, 4 * 4 / 8
    spray = answer(capsys, *BUILDER, "--paths", "spray")["seconds"]
    assert spray == pytest.approx(7 / 8 * size / 1e9, rel=1e-3)
    trace, heat = tmp_path / "t.json", tmp_path / "h.svg"
    words = (*BUILDER, "--paths", "single", "--explain", "--trace", str(trace), "--heat-map", str(heat))
    single = answer(capsys, *words)
    assert single["seconds"] == pytest.approx(cross * size / 1e9, rel=1e-3)
    assert single["seconds"] > spray
    assert "(spray), it would take" in single["critical_path"][-1]
    assert {event["name"] for event in json.loads(trace.read_text())["traceEvents"]} >= {"to rank 1", "process_name"}
    assert "mean use of its links" in "".join(ElementTree.fromstring(heat.read_text()).itertext())
    seeds = {answer(capsys, *BUILDER, "--paths", "ecmp", "--seed", str(seed))["seconds"] for seed in range(4)}
    assert len(seeds) > 1
    assert all(spray * (1 - 1e-9) <= seconds <= single["seconds"] * (1 + 1e-9) for seconds in seeds)


def test_a_schedule_on_its_own_routes_and_on_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "s.json")
    assert main(["synth", "ring:4", "all_gather", "--engine", "greedy", "-o", path]) == 0
    capsys.readouterr()
    plain = answer(capsys, "simulate", path, "--size", "1M")
    explained = answer(capsys, "simulate", path, "--size", "1M", "--explain", "--heat-map", str(tmp_path / "h.svg"))
    assert explained["seconds"] == pytest.approx(plain["seconds"], rel=1e-9)  # the same slices
    single = answer(capsys, "simulate", path, "--size", "1M", "--paths", "single", "--slice", "4K")
    sliced = answer(capsys, "simulate", path, "--size", "1M", "--slice", "4K")
    assert single["seconds"] == pytest.approx(sliced["seconds"], rel=1e-9)  # a ring has one shortest path each
    assert [link["busy"] for link in explained["links"]] == pytest.approx([link["busy"] for link in plain["links"]])
    assert "link rank" in explained["critical_path"][0]
    assert answer(capsys, "simulate", path, "--size", "1M", "--paths", "ecmp")["seconds"] > 0
    assert main(["simulate", path, "--size", "1M", "--utilization", "--explain"]) == 0
    assert "paths    as scheduled" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((*BUILDER, "--paths", "best"), "paths 'best': it must be single"),
        (
            (*BUILDER, "--paths", "spray", "--switching", "cut-through"),
            "messages cut through switches; leave out --switc",
        ),
        ((*BUILDER, "--explain", "--slice", "1"), "at most 5000000 are looked at one by one: give longer slices"),
        ((*BUILDER, "--heat-map", "/no/such/h.svg"), "there is no folder /no/such"),
    ],
)
def test_refusals(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(list(words)) == 2
    assert why in capsys.readouterr().err
