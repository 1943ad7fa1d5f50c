"""The grammar of names: what it accepts, and the sentence for everything else."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.base.quantity import rate
from syntony.topologies import TopologyError, parse
from syntony.topologies.families import FAMILIES
from syntony.topologies.families.family import written
from syntony.topologies.file_format import write
from tests.topologies.named import refusal


def test_positional_and_keyword_arguments_name_the_same_network() -> None:
    reference = parse("rail:4,8,2")
    assert parse("rail:boxes=4,gpus=8,rails=2").renamed(reference.name) == reference
    assert parse(" rail:4, gpus=8, rails = 2 ").renamed(reference.name) == reference


def test_rates_are_exact_and_alpha_is_in_seconds() -> None:
    link = parse("torus:8x8,bandwidth=0.1,alpha=2.5e-6").links[0]
    assert link.bandwidth == Fraction(1, 10)
    assert link.alpha == 2.5e-6
    assert parse("ring:3,bandwidth=100/3").links[0].bandwidth == Fraction(100, 3)


def test_abstract_families_default_to_a_gigabyte_and_a_microsecond() -> None:
    for name in ("ring:3", "full:3", "star:3", "torus:3x3", "mesh:3x3", "hypercube:2"):
        assert {(link.bandwidth, link.alpha) for link in parse(name).links} == {(Fraction(10**9), 1e-6)}


def test_a_topology_keeps_the_name_it_was_called_by() -> None:
    assert parse("torus:4x4,bandwidth=50e9").name == "torus:4x4,bandwidth=50e9"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "unknown topology ''"),
        ("rign:8", "unknown topology 'rign' (did you mean ring?); known are ring, full"),
        ("DGX1", "did you mean dgx1?"),
        ("dgx-a100x:2", "did you mean dgx-a100?"),
        ("banana", "unknown topology 'banana'; known are"),
        ("cluster.json", "a topology file is named file:cluster.json"),
        ("ring", "ring: ranks (ranks on the ring) is missing; an example is ring:8"),
        ("ring:", "ring: ranks is ''; it must be a whole number such as 8"),
        ("ring:-3", "ring: ranks is '-3'; it must be a whole number"),
        ("ring:8.0", "it must be a whole number"),
        ("ring:0", "ring: ranks is 0; a ring needs at least 1"),
        ("star:0", "a star needs at least 1"),
        ("ring:8,ranks=8", "ring: ranks is given twice"),
        ("ring:8,bandwith=1e9", "no parameter 'bandwith' (did you mean bandwidth?)"),
        ("ring:8,1e9,1e-6,3", "argument 4, '3', is one too many"),
        ("ring:8,bandwidth=0", "bandwidth is '0'; it must be a positive number of bytes/s such as 25e9"),
        ("ring:8,bandwidth=-1", "it must be a positive number of bytes/s"),
        ("ring:8,bandwidth=1/0", "it must be a positive number of bytes/s"),
        ("ring:8,bandwidth=25G", "it must be a positive number of bytes/s"),
        ("ring:8,bandwidth=inf", "it must be a positive number of bytes/s"),
        ("ring:8,bandwidth=1e999999999", "it must be a positive number of bytes/s"),
        ("ring:8,alpha=nan", "alpha is 'nan'; it must be a number of seconds such as 1e-6"),
        ("ring:8,alpha=-1", "it must be a number of seconds"),
        ("torus:4*4", "shape is '4*4'; it must be sizes joined by x"),
        ("torus:4x0", "shape is 4x0; every size must be at least 1"),
        ("mesh:4x4,bandwidth=1x2x3", "mesh: 3 bandwidths for 2 dimensions"),
        ("hypercube:17", "dimensions is 17; it must be 0 to 16"),
        ("star:4,multicast=maybe", "multicast is 'maybe'; it must be on or off"),
        ("dgx-a100:0", "dgx-a100: boxes is 0; it must be at least 1"),
        ("dgx1:V100", "dgx1: bandwidth is 'V100'"),
        ("rail:1", "rails join at least 2 boxes"),
        ("rail:2,0,1", "rail: gpus is 0"),
        ("rail:2,1,0", "rail: rails is 0; it must be at least 1"),
        ("rail:2,8,3", "rail: 8 GPUs cannot share 3 NICs evenly; one count must divide the other"),
        ("file", "file: needs a path"),
        ("file:", "file: needs a path"),
        ("file:nowhere/at/all.json", "nowhere/at/all.json: cannot be read: No such file"),
    ],
)
def test_a_wrong_name_gets_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(name)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text(alphabet="ringtorusx:=,0123456789.e-/ " + "bandwithlp", max_size=24))
def test_no_name_at_all_escapes_the_grammar(text: str) -> None:
    """Whatever is typed is either a topology or a sentence; sizes are kept small enough to build."""
    if any(len(part) > 2 for part in "".join(c if c.isdigit() else " " for c in text).split()):
        return
    assert refusal(lambda: parse(text)) != ""


def test_file_names_may_hold_the_characters_of_the_grammar(tmp_path: Path) -> None:
    path = tmp_path / "a:b,c=d.json"
    write(parse("ring:3"), path)
    assert parse(f"file:{path}").ranks == 3


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=10**15))
def test_a_written_rate_reads_back_exactly(value: Fraction) -> None:
    assert rate(written(value)) == value


def test_defaults_are_written_in_the_grammar_they_are_read_in() -> None:
    for family in FAMILIES.values():
        for parameter in family.parameters:
            if parameter.name in family.defaults():
                default = family.defaults()[parameter.name]
                assert parameter.read(written(default)) == default
