"""The benchmark of topologies: its instances exist, and a row says what was built."""

from __future__ import annotations

import pytest

from syntony.benchmarks.__main__ import main
from syntony.benchmarks.synthesis.speed import topologies as bench
from syntony.topologies import parse
from syntony.topologies.families import FAMILIES


def test_every_family_is_measured() -> None:
    assert set(bench.INSTANCES) == set(FAMILIES)
    for family, names in bench.INSTANCES.items():
        assert all(name.partition(":")[0] == family for name in names)


def test_a_row_counts_what_was_built() -> None:
    row = bench.measure("clos:leaves=3,hosts=4")
    assert (row.ranks, row.nodes, row.links) == (12, 16, 30)
    assert row.peak > 10**6


def test_the_table_has_a_line_for_each_instance(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synthesis", "topologies", "dgx1"]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split()[-1] for line in lines[1:]] == list(bench.INSTANCES["dgx1"])
    topology = parse(bench.INSTANCES["dgx1"][0])
    assert lines[1].split()[5:8] == [str(n) for n in (topology.ranks, len(topology.nodes), len(topology.links))]
