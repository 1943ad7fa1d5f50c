"""The schedule file: round trips, the sidecar, and a sentence for every way to be malformed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.command import UserError
from syntony.base.files.fields import FileError
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.engines.sccl.exact import solve_exactly
from syntony.synth.formats import schedule_file
from syntony.synth.formats.schedule_file import content_hash, from_dict, read, write
from syntony.synth.model.collective import Collective
from syntony.synth.model.schedule import Schedule
from syntony.synth.symmetry.groups import expand, fold
from syntony.topologies.parse import parse
from tests.sampled import examples
from tests.synth.networks import collectives, networks
from tests.synth.schedules import SWITCHED


@pytest.fixture(scope="module")
def folded() -> Schedule:
    return solve_exactly(parse("dgx1"), Collective.make("all_gather", 8, 2), 2, 3, Budget())


@pytest.fixture(scope="module")
def summing() -> Schedule:
    return greedy(parse("ring:3"), Collective.make("reduce_scatter", 3), 1024, Budget())


@examples(40)
@given(data=st.data(), sidecar=st.booleans())
def test_round_trip(data: st.DataObject, sidecar: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    topology = data.draw(networks(4))
    schedule = greedy(topology, data.draw(collectives(topology)), 1024, Budget())
    path = tmp_path_factory.mktemp("files") / "schedule.json"
    write(schedule, path, sidecar_rows=-1 if sidecar else 10**6)
    assert read(path) == schedule
    assert path.with_suffix(".npz").exists() == sidecar
    assert content_hash(read(path)) == content_hash(schedule)


def test_symmetric_schedules_stay_folded(folded: Schedule, tmp_path: Path) -> None:
    write(folded, tmp_path / "f.json")
    assert folded.symmetry
    assert len(json.loads((tmp_path / "f.json").read_text())["transfers"]["value"]) == len(folded.transfers)
    assert read(tmp_path / "f.json") == folded
    assert expand(read(tmp_path / "f.json")) == expand(folded)


def test_hash_sees_every_transfer(folded: Schedule, tmp_path: Path) -> None:
    write(folded, tmp_path / "f.json")
    document = json.loads((tmp_path / "f.json").read_text())
    document["transfers"]["step"][3] ^= 1
    (tmp_path / "f.json").write_text(json.dumps(document))
    assert content_hash(read(tmp_path / "f.json")) != content_hash(folded)


@pytest.mark.parametrize("stamp", [None, {"checker": "1", "hash": "ab"}, "nonsense"])
def test_stamps_of_old_files_are_passed_by(stamp: object, folded: Schedule, tmp_path: Path) -> None:
    write(folded, tmp_path / "f.json")
    document = json.loads((tmp_path / "f.json").read_text())
    assert "stamp" not in document
    (tmp_path / "f.json").write_text(json.dumps(document | {"stamp": stamp}))
    assert read(tmp_path / "f.json") == folded


def test_a_sidecar_is_not_unpacked_beyond_its_limit(
    folded: Schedule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folded, tmp_path / "f.json", sidecar_rows=0)
    monkeypatch.setattr(schedule_file, "_MOST_UNPACKED", 1000)
    with pytest.raises(FileError, match=r"its sidecar f.npz is .* bytes when unpacked; at most 1,000 are read"):
        read(tmp_path / "f.json")


def test_writing_leaves_no_part_behind(folded: Schedule, tmp_path: Path) -> None:
    write(folded, tmp_path / "f.json", sidecar_rows=0)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["f.json", "f.npz"]
    with pytest.raises(FileError, match="cannot be written"):
        write(folded, tmp_path / "no" / "f.json")
    with pytest.raises(FileError, match="name is that of the sidecar"):
        write(folded, tmp_path / "f.npz", sidecar_rows=0)


Edit = Callable[[dict[str, Any]], object]

MALFORMED: list[tuple[Edit, str]] = [
    (lambda d: d.update(format="x"), r'format is "x"; it must be "syntony-schedule"'),
    (lambda d: d.update(version=2), "version is 2; this program reads version 1"),
    (
        lambda d: d.update(features=["multicast"]),
        r"features is \[.multicast.\]; what its transfers ask of switches is: none",
    ),
    (lambda d: d.update(features=["warp"]), r"features\[0\] is .warp.; this feature is not known"),
    (lambda d: d.update(extra=1), 'unknown key "extra"'),
    (lambda d: d.pop("rounds"), 'has no "rounds"'),
    (lambda d: d.update(rounds=[1, 0]), r"rounds\[1\] is 0; a step lasts at least 1 round"),
    (lambda d: d.update(engine=3), "engine is 3; it must be a string"),
    (lambda d: d["collective"].update(kind="all"), "collective.kind is .all.; it must be one of all_reduce"),
    (lambda d: d["collective"].update(root=9), "root 9 is not a rank"),
    (lambda d: d["collective"]["members"].__setitem__(1, 9), r"collective.members\[1\] is 9; .* only ranks 0\.\.2"),
    (lambda d: d["collective"]["chunks"]["weight"].__setitem__(0, 0), "chunk 0 has weight 0"),
    (lambda d: d["values"].pop("rank"), 'values has no "rank"'),
    (lambda d: d["values"]["chunk"].__setitem__(1, 3), r"values.chunk\[1\] is 3; chunks are 0\.\.2"),
    (lambda d: d["values"]["rank"].pop(), "the columns of values must be equally long"),
    (lambda d: d["values"]["rank"].__setitem__(0, 1.5), r"values.rank\[0\] is 1.5; it must be a whole number"),
    (lambda d: d["values"]["rank"].__setitem__(0, True), r"values.rank\[0\] is true"),
    (lambda d: d["values"]["operands"].__setitem__(0, [1, 2]), r"values.operands\[0\] is \[1, 2\]; a contribution"),
    (lambda d: d["values"]["rank"].__setitem__(0, -1), r"values.operands\[0\] is \[\]; a sum has at least two"),
    (lambda d: d["values"]["operands"].__setitem__(-1, [0, 99]), "operands are earlier values"),
    (lambda d: d["values"]["operands"].__setitem__(-1, [0, 3]), "one sum is of one chunk"),
    (lambda d: d["values"]["operands"].__setitem__(-1, 4), "must be a list of whole numbers"),
    (lambda d: d["transfers"]["src"].__setitem__(2, 3), r"transfers.src\[2\] is 3; ranks are 0\.\.2"),
    (lambda d: d["transfers"]["dst"].__setitem__(2, -1), r"transfers.dst\[2\] is -1; ranks are 0\.\.2"),
    (lambda d: d["transfers"]["value"].__setitem__(0, 2**40), r"transfers.value\[0\] is 1099511627776; it must be"),
    (lambda d: d["transfers"]["result"].__setitem__(0, 99), r"transfers.result\[0\] is 99; values are"),
    (lambda d: d["transfers"]["step"].__setitem__(0, -1), r"transfers.step\[0\] is -1; steps are"),
    (lambda d: d["transfers"]["route"].__setitem__(4, [77]), r"transfers.route\[4\] names link 77; links are 0\.\.5"),
    (lambda d: d["transfers"]["route"].pop(), "the columns of transfers must be equally long"),
    (lambda d: d["bounds"]["throughput"].update(seconds_per_byte="1/0"), 'it must be an exact fraction such as "7/6"'),
    (lambda d: d["bounds"]["throughput"].update(seconds_per_byte=0.5), "must be an exact fraction"),
    (lambda d: d["bounds"]["throughput"]["witness"].update(kind="magic"), "it must be one of cut, partition, prices"),
    (lambda d: d["topology"].update(links=5), "topology: links"),
    (lambda d: d["topology"].pop("nodes"), 'topology: the file has no "nodes"'),
    (lambda d: d.update(symmetry=[{"nodes": [0]}]), r'symmetry\[0\] has no "chunks"'),
    (lambda d: d.update(sidecar={"file": "../x.npz", "sha256": "0"}, values=None, transfers=None), "beside this one"),
    (lambda d: d.update(sidecar={"file": "x.npz", "sha256": "0"}), "must be null where there is a sidecar"),
]


@pytest.mark.parametrize(("edit", "sentence"), MALFORMED)
def test_malformed_files_are_told(summing: Schedule, tmp_path: Path, edit: Edit, sentence: str) -> None:
    path = tmp_path / "f.json"
    # Listed without symmetry, so that every field has something in it.
    write(expand(summing), path)
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))
    with pytest.raises(UserError, match=sentence) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_json_is_placed(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    for text, sentence in (
        ('{\n "format": ]', "not JSON at line 2, column 12"),
        ('{"format": 1, "format": 2}', 'the key "format" occurs twice'),
        ("[1]", "the file is .1.; it must be an object"),
        ('{"format": NaN}', "NaN is not a number"),
        ("[" * 100_000, "nested too deeply"),
    ):
        path.write_text(text)
        with pytest.raises(FileError, match=sentence):
            read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="byte 0 is not UTF-8"):
        read(path)
    with pytest.raises(FileError, match="cannot be read"):
        read(tmp_path / "absent.json")


def test_sidecar_is_believed_only_whole(folded: Schedule, tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    write(folded, path, sidecar_rows=0)
    good = (tmp_path / "f.npz").read_bytes()
    (tmp_path / "f.npz").write_bytes(good[:-1] + b"?")
    with pytest.raises(FileError, match="not the one that was written with it"):
        read(path)
    (tmp_path / "f.npz").unlink()
    with pytest.raises(FileError, match=r"sidecar f\.npz cannot be read"):
        read(path)


def test_sidecar_of_wrong_shape_is_told(folded: Schedule, tmp_path: Path) -> None:
    import hashlib

    path, sidecar = tmp_path / "f.json", tmp_path / "f.npz"
    write(folded, path, sidecar_rows=0)
    document = json.loads(path.read_text())
    with np.load(sidecar) as archive:
        arrays = {key: archive[key] for key in archive.files}
    for change, sentence in (
        ({"transfers.src": arrays["transfers.src"].astype(float)}, "transfers.src of its sidecar .* column of int32"),
        ({"transfers.offset": arrays["transfers.offset"][::-1]}, "transfers.offset must rise from 0"),
        ({"more": arrays["transfers.src"]}, "it must hold"),
    ):
        np.savez(sidecar, **(arrays | change))
        document["sidecar"]["sha256"] = hashlib.sha256(sidecar.read_bytes()).hexdigest()
        path.write_text(json.dumps(document))
        with pytest.raises(FileError, match=sentence):
            read(path)


WRONG_OF_SWITCHES: list[tuple[Edit, str]] = [
    (lambda d: d.update(features=[]), "what its transfers ask of switches is: in_switch_reduction, multicast"),
    (lambda d: d.update(number_format="int4"), "number_format is .int4.; it must be one of float32"),
    (lambda d: d["transfers"]["dst"].__setitem__(0, 9), r"transfers.dst\[0\] is 9; ranks 0..\d and able switches"),
]


@pytest.mark.parametrize("name", SWITCHED)
def test_switches_as_agents_survive_the_file_and_are_announced(name: str, tmp_path: Path) -> None:
    original = fold(SWITCHED[name]())
    assert bool(original.symmetry) == (name == "switch reduce_scatter")
    write(original, tmp_path / "f.json")
    document = json.loads((tmp_path / "f.json").read_text())
    assert document["features"] == ["in_switch_reduction", "multicast"]
    assert document["number_format"] == original.number_format
    assert read(tmp_path / "f.json") == original
    for edit, message in WRONG_OF_SWITCHES:
        damaged = json.loads((tmp_path / "f.json").read_text())
        edit(damaged)
        with pytest.raises(FileError, match=message):
            from_dict(damaged, "f")


def test_folding_and_expanding_moves_switches_too() -> None:
    original = SWITCHED["switch reduce_scatter"]()
    folded = fold(original)
    assert len(folded.transfers) < len(original.transfers)
    assert sorted(expand(folded).transfers.rows(), key=str) == sorted(original.transfers.rows(), key=str)


def test_the_number_format_is_part_of_what_is_proven() -> None:
    original = SWITCHED["leaf-spine all_reduce"]()
    assert content_hash(original) != content_hash(replace(original, number_format="float16"))
