"""The topology file: exact round trips, and a sentence for every kind of damage."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import topologies
from syntony.base.command import UserError
from syntony.base.files.whole_file import write_text
from syntony.topologies import Topology, TopologyError, file_format, parse
from syntony.topologies.file_format import write
from syntony.topologies.readers import read
from tests.sampled import examples
from tests.topologies.named import EXAMPLES, SMALL, names, networks, refusal


@given(networks())
def test_any_network_survives_the_file_exactly(topology: Topology) -> None:
    assert file_format.from_json(file_format.to_json(topology)) == topology


@examples(60)
@given(names())
def test_any_family_survives_the_file_exactly(name: str) -> None:
    topology = parse(name)
    again = file_format.from_json(file_format.to_json(topology))
    assert again == topology
    assert file_format.to_json(again) == file_format.to_json(topology)


@pytest.mark.parametrize("name", [*SMALL, *EXAMPLES])
def test_the_object_is_plain_json(name: str) -> None:
    topology = parse(name)
    assert file_format.from_dict(json.loads(json.dumps(file_format.to_dict(topology)))) == topology


def test_the_example_in_the_documentation_is_a_topology() -> None:
    text = (Path(topologies.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
    files = re.findall(r"^    \{\n(?:    .*\n)*?    \}$", text, re.MULTILINE)
    by_hand, written = (file_format.from_json(file) for file in files)
    assert (by_hand.ranks, len(by_hand.links)) == (2, 4)
    assert (written.ranks, len(written.links)) == (2, 2)


def test_links_by_name_with_units_and_cables_are_the_same_topology() -> None:
    """What people write by hand, against what the writer makes of it."""
    data = {
        "format": "syntony-topology",
        "version": 1,
        "name": "by hand",
        "nodes": [{"kind": "rank", "name": "a"}, {"kind": "rank", "name": "b"}, {"kind": "switch", "name": "leaf"}],
        "links": [
            {"between": ["a", "leaf"], "alpha": "1us", "bandwidth": "25GB/s"},
            {"src": "b", "dst": 2, "alpha": 7e-7, "bandwidth": 12.5e9},
            {"src": "leaf", "dst": "b", "alpha": "700ns", "bandwidth": "100 Gbit/s"},
            {"between": [0, "b"], "alpha": 0, "bandwidth": "1GiB/s"},
        ],
    }
    found = file_format.from_dict(data)
    assert [(link.id, link.src, link.dst) for link in found.links] == [
        (0, 0, 2), (1, 2, 0), (2, 1, 2), (3, 2, 1), (4, 0, 1), (5, 1, 0)
    ]  # fmt: skip
    assert [link.bandwidth for link in found.links] == [25 * 10**9] * 2 + [12_500_000_000] * 2 + [1 << 30] * 2
    assert [link.alpha for link in found.links] == [1e-6, 1e-6, 7e-7, 7e-7, 0.0, 0.0]
    assert file_format.from_json(file_format.to_json(found)) == found


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        (
            {"between": ["a", "leef"]},
            'links[0].between[1] is "leef"; there is no node of that name (did you mean leaf?)',
        ),
        ({"between": ["a"]}, "a cable has two ends"),
        ({"between": ["a", 1.5]}, "a node is named by its number or its name"),
        ({"between": ["a", "leaf"], "src": 0}, 'unknown key "src"'),
        ({"between": ["a", "leaf"], "bandwidth": "25 GX/s"}, "it must be bytes/s, positive, such as 25e9"),
        ({"between": ["a", "leaf"], "alpha": "1min"}, 'it must be seconds, such as 1e-6 or "1us"'),
    ],
)
def test_mistakes_in_cables_are_named(link: dict[str, Any], sentence: str) -> None:
    nodes = [{"kind": "rank", "name": "a"}, {"kind": "switch", "name": "leaf"}]
    whole = {"alpha": 0, "bandwidth": 1} | link
    data = {"format": "syntony-topology", "version": 1, "name": "n", "nodes": nodes, "links": [whole]}
    with pytest.raises(TopologyError) as caught:
        file_format.from_dict(data, "net.json")
    assert sentence in str(caught.value)


def test_a_whole_number_is_an_exact_bandwidth_too() -> None:
    data = file_format.to_dict(parse("ring:2"))
    data["links"][0]["bandwidth"] = 12
    assert file_format.from_dict(data | {"generators": []}).links[0].bandwidth == Fraction(12)


def _drop(*path: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


def _put(value: Any, *path: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_drop("format"), 'the file has no "format"'),
        (_put("msccl", "format"), 'format is "msccl"; it must be "syntony-topology"'),
        (_put(2, "version"), "version is 2; this program reads version 1"),
        (_put("1", "version"), 'version is "1"'),
        (_drop("name"), 'the file has no "name"'),
        (_put(7, "name"), "name is 7; it must be a string"),
        (_put({}, "nodes"), "nodes is {}; it must be a list"),
        (_put([], "nodes"), "at least one rank"),
        (_put("x", "nodes", 2), 'nodes[2] is "x"; it must be an object'),
        (_drop("nodes", 2, "kind"), 'nodes[2] has no "kind"'),
        (_put("gpu", "nodes", 2, "kind"), 'nodes[2].kind is "gpu"; a node is one of rank, switch, nic'),
        (_put(1, "nodes", 2, "multicast"), "nodes[2].multicast is 1; it must be true or false"),
        (_put(True, "nodes", 2, "multicast"), "node 2 is a rank; only a switch"),
        (_put([1], "nodes", 2, "place"), "nodes[2].place is [1]; it must be two numbers, [x, y]"),
        (_put([1, 1e99], "nodes", 2, "place"), "nodes[2].place"),
        (_put("rank0", "nodes", 2, "name"), "nodes 0 and 2 share the name 'rank0'"),
        (_put("two\nlines", "nodes", 2, "name"), "node 2 has the name 'two\\nlines'; a name is printable"),
        (_put("", "nodes", 2, "name"), "node 2 has the name ''"),
        (_put("\ud800", "name"), "the topology has the name '\\ud800'; a name is printable text"),
        (_put(1, "nodes", 2, "colour"), 'nodes[2] has the unknown key "colour"'),
        (_drop("links", 5, "dst"), 'links[5] has no "dst"'),
        (_put("3", "links", 5, "dst"), 'links[5].dst is "3"; there is no node of that name'),
        (_put(True, "links", 5, "dst"), "links[5].dst is true; it must be a whole number"),
        (_put(1.0, "links", 5, "dst"), "links[5].dst is 1.0; it must be a whole number"),
        (_put(99, "links", 5, "dst"), "link 5 ends at node 99; nodes are 0..3"),
        (_put("fast", "links", 5, "alpha"), 'links[5].alpha is "fast"; it must be seconds'),
        (_put(-1, "links", 5, "alpha"), "link 5 has alpha -1.0"),
        (_put(10**400, "links", 5, "alpha"), "links[5].alpha"),
        (_put(-1.5, "links", 5, "bandwidth"), "links[5].bandwidth is -1.5; it must be bytes/s, positive"),
        (_put("1/0", "links", 5, "bandwidth"), 'links[5].bandwidth is "1/0"; it must be bytes/s, positive'),
        (_put("-5", "links", 5, "bandwidth"), "links[5].bandwidth"),
        (_put(None, "links", 5, "bandwidth"), "links[5].bandwidth is null"),
        (_put("2", "links", 5, "bandwidth"), "generator 0 is not an automorphism"),
        (_put([0, 1], "generators", 0), "generator 0 is not a permutation of the node ids 0..3"),
        (_put([0, 1, 2, "3"], "generators", 0), "generators[0] must be a list of node numbers"),
        (_put([1, 0, 2, 3], "generators", 0), "generator 0 is not an automorphism"),
        (_put(1, "links_"), 'the file has the unknown key "links_" (known: format, version'),
    ],
)
def test_a_wrong_field_is_named_with_its_position(change: Callable[[Any], None], sentence: str) -> None:
    data = file_format.to_dict(parse("ring:4"))
    change(data)
    with pytest.raises(TopologyError) as caught:
        file_format.from_json(json.dumps(data), "net.json")
    assert str(caught.value).startswith("net.json: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not JSON at line 1, column 1"),
        ('{"format": "syntony-topology",\n "version": }', "not JSON at line 2, column 13"),
        ('{"alpha": NaN}', "NaN is not a number"),
        ('{"name": "a", "name": "b"}', 'the key "name" occurs twice'),
        ("[" * 100_000, "nested too deeply"),
        ("[1, 2]", "the file is [1, 2]; it must be an object"),
        ("1" * 5000, "not a topology file"),
    ],
)
def test_text_that_is_no_topology_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(TopologyError) as caught:
        file_format.from_json(text, "net.json")
    assert str(caught.value).startswith("net.json: ")
    assert sentence in str(caught.value)


def test_damage_anywhere_is_a_sentence_or_a_topology_never_a_crash() -> None:
    seed = 20261121
    print(f"seed {seed}")
    chance = random.Random(seed)
    text = file_format.to_json(parse("rail:2,2,1"))
    refused = 0
    for _ in range(1500):
        position = chance.randrange(len(text))
        damaged = text[:position] + chance.choice(['"', "}", "[", "9", "-", "null", "", "\x00"]) + text[position + 1 :]
        sentence = refusal(partial(file_format.from_json, damaged))
        refused += sentence is not None
        assert sentence is None or sentence.startswith("topology: ")
    assert refused > 1000


@examples(200)
@given(
    st.data(),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    ),
)
def test_junk_in_any_field_is_a_sentence_or_a_topology(data: st.DataObject, junk: Any) -> None:
    whole = copy.deepcopy(file_format.to_dict(parse("star:2")))
    spot: Any = whole
    while True:
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(spot[key], (dict, list)) or not spot[key] or data.draw(st.booleans()):
            spot[key] = junk
            break
        spot = spot[key]
    sentence = refusal(lambda: file_format.from_dict(whole))
    assert sentence is None or sentence.startswith("topology: ")


def test_files_are_whole_or_absent(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    write(parse("dgx1"), path)
    assert read(path) == parse("dgx1")
    assert [entry.name for entry in tmp_path.iterdir()] == ["net.json"]
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(UserError, match=r"folder: cannot be written"):
        write(parse("ring:3"), folder)
    with pytest.raises(UserError, match=r"net: cannot be written: No such file"):
        write(parse("ring:3"), tmp_path / "absent" / "net")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["folder", "net.json"]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "net.json"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_text(encoding="utf-8") == "old"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    binary = tmp_path / "picture.json"
    binary.write_bytes(b"{\xff\xfe")
    with pytest.raises(TopologyError, match=r"picture.json: not a text file: byte 1 is not UTF-8"):
        read(binary)
    with pytest.raises(TopologyError, match="this folder is not the root of a Linux system: it has no sys/devices"):
        read(tmp_path)
