"""TACCL's topology profiles: the shapes they stand for, what their numbers mean, and sentences for the rest."""

from __future__ import annotations

import copy
import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from syntony.base.command import UserError
from syntony.topologies import parse
from syntony.topologies.hosts import hosts_of
from syntony.topologies.readers.taccl_json import read
from syntony.topologies.topology import Topology

NDV2: dict[str, Any] = {
    "name": "NDv2_32KB",
    "gpus_per_node": 8,
    "nics_per_node": 1,
    "alpha": 3,
    "node_betas_list": [7.18, 14.38],
    "node_invbws_list": [10.18, 17.38],
    "remote_alpha": 26,
    "remote_beta": 32.8,
    "remote_invbw": 59,
    "nnodes": 2,
}
DGX2: dict[str, Any] = {
    "name": "DGX2",
    "gpus_per_node": 16,
    "nics_per_node": 8,
    "alpha": 0.3,
    "node_betas_list": [8],
    "node_invbws_list": [8],
    "remote_invbw": 107,
    "remote_alpha": 2.6,
    "remote_beta": 105,
    "nnodes": 3,
}
CUSTOM: dict[str, Any] = {
    "name": "three",
    "gpus_per_node": 3,
    "alpha": 1,
    "links": [[0, 2, 0], [0, 0, 1], [1, 0, 0]],
    "betas": [[0, 4, 0], [0, 0, 5], [8, 0, 0]],
    "invbws": [[0, 5, 0], [0, 0, 6], [9, 0, 0]],
    "chunk_bytes": 1000,
}


def _read(data: object) -> Topology:
    return read(json.dumps(data).encode(), "their.json")


def test_two_kinds_of_link_are_an_ndv2() -> None:
    topology = _read(NDV2)
    fast, slow = Fraction(32768 * 10**6 * 100, 718), Fraction(32768 * 10**6 * 100, 1438)
    assert topology.ranks == 16
    wires = parse("dgx1")
    for link in wires.links:
        (here,) = topology.links_between(link.src, link.dst)
        (there,) = topology.links_between(link.src + 8, link.dst + 8)
        assert here.bandwidth == there.bandwidth == (fast if link.bandwidth == 50 * 10**9 else slow)
        assert here.alpha == pytest.approx(3e-6)
    assert [host.ranks for host in hosts_of(topology)] == [tuple(range(8)), tuple(range(8, 16))]
    assert len(topology.generators) == 1
    nic, network = (next(node.id for node in topology.nodes if node.name == name) for name in ("nic0.0", "network"))
    (wire,) = topology.links_between(nic, network)
    assert wire.bandwidth == Fraction(32768 * 10**6 * 10, 328)
    assert wire.alpha == pytest.approx(13e-6)
    assert topology.about == "from a TACCL profile for chunks of 32768 bytes; its unit taken as 1 us"


def test_one_kind_of_link_is_a_switch() -> None:
    topology = _read(DGX2)
    assert (topology.ranks, len(topology.generators)) == (48, 2)
    out = topology.links_from(0)
    assert [topology.nodes[link.dst].name for link in out] == ["switch0", "nic0.0"]
    assert out[0].bandwidth == Fraction(1 << 20) / 8 * 10**6
    assert out[0].alpha == pytest.approx(0.15e-6)
    assert topology.nodes[topology.links_from(3)[1].dst].name == "nic0.1"
    scaled = _read(DGX2 | {"microseconds": 0.01, "nnodes": 1, "chunk_bytes": 1024})
    assert [node.kind for node in scaled.nodes].count("nic") == 0
    assert scaled.links[0].bandwidth == Fraction(1024 * 10**8, 8)
    assert scaled.about == "from a TACCL profile for chunks of 1024 bytes"


def test_matrices_are_read_from_column_to_row() -> None:
    topology = _read(CUSTOM)
    assert sorted((link.src, link.dst, link.bandwidth) for link in topology.links) == [
        (0, 2, Fraction(1000 * 10**6, 8)),
        (1, 0, Fraction(1000 * 10**6, 4)),
        (1, 0, Fraction(1000 * 10**6, 4)),
        (2, 1, Fraction(1000 * 10**6, 5)),
    ]


def test_files_are_found_by_what_is_in_them(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(NDV2), encoding="utf-8")
    assert parse(f"file:{path}") == _read(NDV2)


@pytest.mark.parametrize(
    ("base", "change", "sentence"),
    [
        (NDV2, {"name": ""}, 'name is ""; it must be a name'),
        (NDV2, {"gpus_per_node": 0}, "gpus_per_node is 0; it must be a whole number from 1"),
        (NDV2, {"gpus_per_node": 9}, "node_betas_list is .*; it must have one entry .*, or two for the 8 GPUs"),
        (NDV2, {"nics_per_node": 3}, "nics_per_node is 3; it must divide the 8 GPUs"),
        (NDV2, {"nics_per_node": -1}, '"nnodes" is 2, but without "nics_per_node" nothing connects the boxes'),
        (NDV2, {"alpha": None}, "alpha is null; it must be a number"),
        (NDV2, {"node_betas_list": [0, 1], "node_invbws_list": [3, 4]}, "node_betas_list has a beta of 0"),
        (NDV2, {"node_betas_list": [7.18, 14.38, 1]}, "node_invbws_list is .*; it must have as many entries"),
        (NDV2, {"node_invbws_list": [20, 17.38]}, r"node_invbws_list\[0\] is 20.0, but alpha and beta are 3 \+ 7.18"),
        (NDV2, {"remote_invbw": 100}, r"remote_invbw is 100, but alpha and beta are 26 \+ 32.8"),
        (NDV2, {"nnodes": 0}, "nnodes is 0; it must be a whole number from 1 to 1024"),
        (NDV2, {"microseconds": 0}, "microseconds is 0; it must be more than 0"),
        (NDV2, {"colour": 1}, 'unknown key "colour"; a TACCL topology has'),
        (NDV2, {"links": []}, '"node_betas_list" and "links" state the same thing; give one of them'),
        (CUSTOM, {"betas": [[0]]}, "betas is .*; it must be 3 rows of 3 numbers"),
        (CUSTOM, {"links": [[1, 2, 0], [0, 0, 1], [1, 0, 0]]}, r"links\[0\]\[0\] is 1; it must be a number of links"),
        (CUSTOM, {"betas": [[0, -4, 0], [0, 0, 5], [8, 0, 0]]}, r"betas\[0\]\[1\] is -4; it must be a number that"),
    ],
)
def test_what_is_wrong_is_said(base: dict[str, Any], change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=f"their.json: {sentence}"):
        _read(base | change)


def test_keys_that_are_missing() -> None:
    for base in (NDV2, CUSTOM):
        for key in set(base) - {"remote_invbw", "nnodes", "chunk_bytes"}:
            rest = {name: value for name, value in base.items() if name != key}
            with pytest.raises(UserError, match=r"their.json: "):
                _read(rest)


def test_mutants_are_read_or_refused() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    junk = [None, True, -1, 0, 1, 3, 2**70, 1e-320, 1.5, "", "x", [], [[]], [1], [[1]], {}]
    for _ in range(600):
        data = json.loads(json.dumps(rng.choice((NDV2, CUSTOM))))
        for _ in range(rng.randint(1, 2)):
            key = rng.choice(list(data))
            inner = data[key]
            if isinstance(inner, list) and inner and rng.random() < 0.5:
                inner[rng.randrange(len(inner))] = copy.deepcopy(rng.choice(junk))
            else:
                data[key] = copy.deepcopy(rng.choice(junk))
        said = ""
        try:
            assert _read(data).ranks >= 1
        except UserError as error:
            said = str(error)
        assert not said or said.startswith(("their.json: ", "NDv2_32KB", "three"))
    for text in (b"\xff", b"[", b"[]", b'{"gpus_per_node": 1, "gpus_per_node": 2}', b'{"gpus_per_node": NaN}'):
        with pytest.raises(UserError, match=r"their.json"):
            read(text, "their.json")
