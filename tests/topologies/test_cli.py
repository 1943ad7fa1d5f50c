"""The topo verbs: their examples run as they stand, their JSON is JSON, their refusals leave no file."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from syntony.base.command import Command, UserError
from syntony.base.outputs import require_outputs
from syntony.commands import find
from syntony.parser import parsed, parser_of
from syntony.topologies import file_format, parse
from syntony.topologies.cli import COMMANDS
from syntony.topologies.readers import read


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _run(line: str) -> int:
    """Runs `topo ...` as the front door does, but lets mistakes pass."""
    command, rest = find(shlex.split(line))
    parser = parser_of(command)
    arguments = parsed(parser, command, rest)
    require_outputs(parser, arguments)
    return command.run(arguments)


def _json(line: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert _run(f"{line} --json") == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.name))
def test_every_example_works_as_it_stands(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    program, line = command.example.split(" ", 1)
    assert program == "syntony"
    assert _run(line) == 0
    assert capsys.readouterr().out.strip()
    for written in Path().iterdir():
        written.unlink()
    assert _json(line, capsys)["command"] == " ".join(command.name)


def test_list_tells_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    families = {family["name"]: family for family in _json("topo list", capsys)["families"]}
    assert {"ring", "full", "star", "dgx-a100", "dgx1", "torus", "mesh", "rail", "hypercube"} <= families.keys()
    bandwidth = next(parameter for parameter in families["dgx1"]["parameters"] if parameter["name"] == "bandwidth")
    assert bandwidth["default"] == "25e9"
    assert _run("topo list") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in families)


def test_show_tells_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    facts = _json("topo show dgx-a100:2", capsys)
    assert facts["ranks"] == 16
    assert facts["diameter_hops"] == 1
    assert facts["symmetry_order"] == 40320**2 * 2
    assert {"from": "rank", "to": "switch", "count": 16, "bandwidth": "300000000000", "alpha": 3.5e-7} in facts["links"]
    assert _run("topo show dgx-a100:2") == 0
    out = capsys.readouterr().out
    assert "diameter: 1 hop from rank to rank" in out
    assert "nvswitch0 .. nvswitch1" in out


def test_show_says_who_is_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    data = file_format.to_dict(parse("mesh:3"))
    data["links"] = [link for link in data["links"] if link["dst"] != 0]
    data["generators"] = []
    Path("cut.json").write_text(json.dumps(data), encoding="utf-8")
    assert _json("topo show file:cut.json", capsys)["cut_off"] == [1, 0]
    assert _run("topo show file:cut.json") == 0
    out = capsys.readouterr().out
    assert "not connected: rank 1 cannot reach rank 0" in out
    assert "rank -> rank" in out  # links, not cables, as not all go both ways
    assert "1 out, 0 in" in out


def test_show_asks_about_the_one_wire_that_is_not_the_same_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    data = file_format.to_dict(parse("mesh:2x3"))
    slow = next(link for link in data["links"] if (link["src"], link["dst"]) == (1, 4))
    slow["bandwidth"] = "500000000"
    data["generators"] = []
    Path("slow.json").write_text(json.dumps(data), encoding="utf-8")
    assert _json("topo show file:slow.json", capsys)["asymmetric"] == [["rank1", "rank4"]]
    assert _run("topo show file:slow.json") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "asymmetric wire rank1-rank4: rank1 -> rank4 has 500 MB/s in 1 us, rank4 -> rank1 has 1 GB/s in 1 us; meant?"
    ) in out
    one_way = {**data, "links": [link for link in data["links"] if link["src"] < link["dst"]]}
    Path("one_way.json").write_text(json.dumps(one_way), encoding="utf-8")
    assert _json("topo show file:one_way.json", capsys)["asymmetric"] == []


def test_draw_writes_the_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert _json("topo draw mesh:2x2 -o grid.svg", capsys)["file"] == "grid.svg"
    assert Path("grid.svg").read_text(encoding="utf-8").startswith("<svg")


def test_convert_goes_from_name_to_file_to_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert _json("topo convert rail:2,4,2 one.json", capsys) == {
        "command": "topo convert", "file": "one.json", "name": "rail:2,4,2", "ranks": 8, "links": 2 * (8 + 8 + 4)
    }  # fmt: skip
    assert _run("topo convert one.json two.json") == 0
    assert _run("topo convert file:two.json three.json") == 0
    assert read("three.json") == parse("rail:2,4,2")


MATRIX = "\tGPU0 GPU1 NIC0\nGPU0 X NV12 PXB\nGPU1 NV12 X SYS\nNIC0 PXB SYS X\n"


def test_convert_reads_descriptions_of_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """By what is in them, by --from, and not at all as something that they are not."""
    Path("ring").write_text(MATRIX, encoding="utf-8")
    Path("box.txt").write_text(MATRIX, encoding="utf-8")
    Path("box.xml").write_text("<system version='1'><cpu/><cpu/></system>", encoding="utf-8")
    assert _json("topo convert box.txt box.json", capsys)["ranks"] == 2
    assert _json("topo convert file:box.xml cpus.json --from nccl-xml", capsys)["ranks"] == 2
    assert _json("topo convert ring:5 ring.json", capsys)["ranks"] == 5  # a family goes before a file
    with pytest.raises(UserError, match=r"box.txt:1: not well-formed XML"):
        _run("topo convert box.txt other.json --from nccl-xml")
    with pytest.raises(UserError, match=r"no format 'yaml'"):
        _run("topo convert box.txt other.json --from yaml")
    with pytest.raises(UserError, match=r"unknown topology 'box.xml'; a topology file is named file:box.xml"):
        _run("topo show box.xml")
    assert not Path("other.json").exists()


def test_show_says_what_a_machine_has(capsys: pytest.CaptureFixture[str]) -> None:
    Path("box.txt").write_text(MATRIX, encoding="utf-8")
    assert _json("topo convert box.txt box.json", capsys)["file"] == "box.json"
    sentence = "2 GPUs, 1 NIC of 31.5 GB/s, 2 NUMA nodes; NVLink 12 x 25 GB/s between 1 pair of GPUs"
    for name in ("file:box.txt", "file:box.json"):
        assert _json(f"topo show {name}", capsys)["about"].startswith(sentence)
        assert _run(f"topo show {name}") == 0
        assert sentence[:40] in capsys.readouterr().out
    assert _json("topo show ring:3", capsys)["about"] == ""


def test_detect_writes_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    told = _json("topo detect -o here.json", capsys)
    assert told["file"] == "here.json"
    assert read("here.json").about == told["about"]
    assert _json("topo detect", capsys)["file"] is None
    with pytest.raises(UserError, match=r"its name must end in .json"):
        _run("topo detect -o here.xml")


def test_detect_tells_this_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert _json("topo detect", capsys)["threads"] >= 1
    assert _run("topo detect") == 0
    assert "cores" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("topo show banana:3", "unknown topology 'banana'"),
        ("topo show file:absent.json", "absent.json: cannot be read"),
        ("topo show file:broken.json", "broken.json: not JSON at line 1, column 2"),
        ("topo list banana", "no family 'banana'; there are ring"),
        ("topo draw ring:3 -o ring.png", "ring.png: a drawing is an SVG file; its name must end in .svg"),
        ("topo draw ring:0 -o ring.svg", "a ring needs at least 1"),
        ("topo draw ring:3 -o absent/ring.svg", "absent/ring.svg: there is no folder absent"),
        ("topo convert ring:3 ring.xml", "ring.xml: a topology file is JSON; its name must end in .json"),
        ("topo convert broken.json fixed.json", "broken.json: not JSON at line 1, column 2"),
        ("topo convert ring:3 absent/ring.json", "absent/ring.json: there is no folder absent"),
    ],
)
def test_the_users_mistakes_get_a_sentence_and_leave_no_file(line: str, sentence: str) -> None:
    Path("broken.json").write_text("{broken", encoding="utf-8")
    with pytest.raises(UserError) as caught:
        _run(line)
    assert sentence in str(caught.value)
    assert [path.name for path in Path().iterdir()] == ["broken.json"]
