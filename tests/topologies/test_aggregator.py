"""Aggregating switches: the table, the grammar that gives switches a profile, the file, and symmetry."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from syntony.__main__ import main
from syntony.base.standing import Standing
from syntony.topologies import TopologyError, file_format, parse
from syntony.topologies.aggregator import NUMBER_FORMATS, PROFILES, Aggregator
from tests.topologies.named import refusal


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_can_be_given_to_a_star_and_survives_the_file(name: str) -> None:
    topology = parse(f"star:4,aggregator={name}")
    (switch,) = (node for node in topology.nodes if node.kind == "switch")
    profile = PROFILES[name]
    assert switch.reduces
    assert switch.aggregator == profile.aggregator
    assert switch.multicast == profile.aggregator.multicast
    assert set(profile.aggregator.formats) <= set(NUMBER_FORMATS)
    assert profile.source
    assert profile.summary
    assert file_format.from_json(file_format.to_json(topology)) == topology
    assert topology.reversed().reversed() == topology
    assert topology.renamed("x").nodes == topology.nodes


def test_overrides_change_the_profile_before_them_and_no_other() -> None:
    topology = parse("star:2,aggregator=switchml,aggregator.slots=64,aggregator.rate=1e9,aggregator.formats=int32")
    expected = replace(PROFILES["switchml"].aggregator, slots=64, rate=Fraction(10**9), formats=("int32",))
    assert topology.nodes[2].aggregator == expected
    assert PROFILES["switchml"].aggregator.slots == 512


def test_a_pattern_chooses_switches_and_symmetry_that_mixes_them_is_dropped() -> None:
    every = parse("rail:boxes=2,gpus=4,rails=4")
    some = parse("rail:boxes=2,gpus=4,rails=4,aggregator=sharp@rail0")
    assert [node.name for node in some.nodes if node.aggregator] == ["rail0"]
    assert 0 < len(some.generators) < len(every.generators)
    rail0 = next(node.id for node in some.nodes if node.name == "rail0")
    assert all(generator[rail0] == rail0 for generator in some.generators)
    # With the same profile everywhere, all of them stay.
    assert parse("rail:boxes=2,gpus=4,rails=4,aggregator=sharp@rail*").generators == every.generators


def test_a_generator_that_moves_an_aggregator_to_another_is_no_automorphism() -> None:
    topology = parse("rail:boxes=2,gpus=4,rails=4,aggregator=sharp@rail*")
    rail = next(node for node in topology.nodes if node.name == "rail0")
    nodes = list(topology.nodes)
    nodes[rail.id] = replace(rail, aggregator=PROFILES["switchml"].aggregator)
    with pytest.raises(TopologyError, match="which is of another kind"):
        replace(topology, nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("star:4,aggregator=switchlm", "unknown profile 'switchlm' (did you mean switchml?); known are sharp"),
        (
            "ring:4,aggregator=sharp",
            "so none can be given aggregator sharp; it has no switches",
        ),
        ("star:4,aggregator=sharp@spine*", "no switch is named 'spine*'"),
        ("star:4,aggregator.slots=4", "aggregator.slots comes before any aggregator=PROFILE"),
        ("star:4,aggregator=sharp,aggregator.slot=4", "it has no 'slot' (did you mean slots?)"),
        ("star:4,aggregator=sharp,aggregator.slots=0", "has slots 0; it must be at least 1"),
        ("star:4,aggregator=sharp,aggregator.slots=x", "'x': a whole number such as 8"),
        ("star:4,aggregator=sharp,aggregator.hot=3/2", "it must be a share, more than 0 and at most 1"),
        ("star:4,aggregator=sharp,aggregator.formats=int4", "it must be some of float32"),
        ("star:4,aggregator=sharp,aggregator.sharing=none", "it must be one of partitioned, shared"),
        ("star:4,aggregator=sharp,aggregator.slot_bytes=6", "it must be a multiple of 4"),
    ],
)
def test_what_is_wrong_with_a_name_is_said(name: str, sentence: str) -> None:
    assert sentence in str(refusal(lambda: parse(name)))


def _put(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda row: row["aggregator"].update({key: value})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_put("slots", "many"), 'nodes[2].aggregator.slots is "many"; it must be a whole number'),
        (_put("slots", 0), "nodes[2].aggregator: aggregator switchml has slots 0"),
        (_put("formats", ["int32", "int4"]), "nodes[2].aggregator.formats is"),
        (_put("rate", "-1"), 'nodes[2].aggregator.rate is "-1"; it must be bytes/s'),
        (_put("sharing", "no"), "it must be one of partitioned, shared"),
        (_put("hot", "0"), 'nodes[2].aggregator.hot is "0"; it must be a share'),
        (_put("speed", 1), 'nodes[2].aggregator has the unknown key "speed"'),
        (lambda row: row["aggregator"].pop("tenants"), 'nodes[2].aggregator has no "tenants"'),
        (lambda row: row.pop("reduces"), "node 2 has aggregator switchml but does not reduce"),
        (lambda row: row.update(aggregator=7), "nodes[2].aggregator is 7; it must be an object"),
    ],
)
def test_damage_to_an_aggregator_in_a_file_is_named(change: Callable[[dict[str, Any]], None], sentence: str) -> None:
    data = json.loads(file_format.to_json(parse("star:2,aggregator=switchml")))
    change(data["nodes"][2])
    assert sentence in str(refusal(lambda: file_format.from_dict(data)))


def test_the_pool_limits_what_a_worker_moves() -> None:
    aggregator = Aggregator("one", 512, 1024, ("int32",), tenants=2)
    assert aggregator.pool_bytes() == 256 * 1024
    assert aggregator.pool_rate(Fraction(1, 1000)) == 256 * 1024 * 1000
    shared = replace(aggregator, sharing="shared")
    assert shared.pool_bytes() == 512 * 1024
    assert shared.pool_bytes(jobs=4) == 128 * 1024
    assert replace(aggregator, slots=None).pool_rate(Fraction(1)) is None


def test_profiles_say_how_whole_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """What is listed is what the table has, and what is no whole idea says what is missing."""
    assert main(["topo", "aggregators"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    listed = {name: standing for standing, name in re.findall(r"^([WSP]) (\S+) ", text, re.MULTILINE)}
    assert listed == {name: profile.standing for name, profile in PROFILES.items()}
    for name, profile in PROFILES.items():
        assert (profile.standing is Standing.WHOLE) == (not profile.missing and not profile.simulated), name
