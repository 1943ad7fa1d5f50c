"""Traffic for reconfigurable fabrics: patterns written out by hand, files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from syntony.topologies import TopologyError
from syntony.topologies.demand import AllReduce, Demand, read_demand


def _pairs(demand: Demand) -> dict[tuple[int, int], float]:
    return dict(zip(zip(demand.src.tolist(), demand.dst.tolist(), strict=True), demand.bytes.tolist(), strict=True))


def test_simple_patterns() -> None:
    assert _pairs(read_demand("ring", 3, "traffic")) == {(0, 1): 1, (1, 2): 1, (2, 0): 1}
    assert _pairs(read_demand("all_to_all", 3, "traffic")) == {
        (0, 1): 0.5, (0, 2): 0.5, (1, 0): 0.5, (1, 2): 0.5, (2, 0): 0.5, (2, 1): 0.5,
    }  # fmt: skip
    everybody = read_demand("all_reduce", 4, "traffic")
    assert everybody.all_reduces == (AllReduce((0, 1, 2, 3), 1.0),)
    assert _pairs(everybody) == {}
    assert everybody.all_reduces[0].sent == 1.5


def test_axes_vary_fastest_at_the_end() -> None:
    demand = read_demand("dp2xpp2xtp2", 8, "traffic")
    members = {group.members for group in demand.all_reduces}
    assert members == {(0, 1), (2, 3), (4, 5), (6, 7), (0, 4), (1, 5), (2, 6), (3, 7)}
    assert _pairs(demand) == {
        pair: 1 for stage in ((0, 2), (1, 3), (4, 6), (5, 7)) for pair in (stage, stage[::-1])
    }  # fmt: skip
    assert demand.turns == ((4, 5, 6, 7, 0, 1, 2, 3), (1, 0, 3, 2, 5, 4, 7, 6))


def test_experts_send_all_to_all_and_axes_of_one_nothing() -> None:
    assert _pairs(read_demand("ep3xdp1", 3, "traffic")) == _pairs(read_demand("all_to_all", 3, "traffic"))
    assert read_demand("ep3xdp1", 3, "traffic").all_reduces == ()


def test_all_reduces_as_pairs_are_rings() -> None:
    pairs = _pairs(read_demand("tp3xpp2", 6, "traffic").as_pairs())
    ring = 2 * 2 / 3
    assert pairs == pytest.approx({
        (0, 2): ring, (2, 4): ring, (4, 0): ring, (1, 3): ring, (3, 5): ring, (5, 1): ring,
        (0, 1): 1, (1, 0): 1, (2, 3): 1, (3, 2): 1, (4, 5): 1, (5, 4): 1,
    })  # fmt: skip


def test_a_matrix_is_the_same_as_csv_and_json(tmp_path: Path) -> None:
    rows = [[9, 5, 0], [0, 0, 2.5e9], [1, 0, 0]]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    (tmp_path / "t.csv").write_text("9, 5, 0\n0,0,2.5e9\n\n1,0,0\n")
    for name in ("t.json", "t.csv"):
        assert _pairs(read_demand(str(tmp_path / name), 3, "traffic")) == {(0, 1): 5, (1, 2): 2.5e9, (2, 0): 1}


def test_an_object_names_collectives(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps({
        "all_reduce": [{"members": [3, 1], "bytes": 8}, {"members": [2], "bytes": 7}],
        "all_to_all": [{"members": [0, 1, 2], "bytes": 6}],
        "sends": [[0, 1, 4], [3, 0, 1.5], [2, 2, 100], [0, 3, 0]],
    }))  # fmt: skip
    demand = read_demand(str(path), 4, "traffic")
    assert demand.all_reduces == (AllReduce((3, 1), 8.0),)
    assert _pairs(demand) == {
        (0, 1): 7, (0, 2): 3, (1, 0): 3, (1, 2): 3, (2, 0): 3, (2, 1): 3, (3, 0): 1.5,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rings", "topoopt: traffic is 'rings'; it must be ring, all_to_all, all_reduce, axes such as dp4xtp8"),
        ("dp4xtp2", "topoopt: traffic: 4x2 is 8 ranks, but there are 3"),
        ("dp0xtp3", "topoopt: traffic is 'dp0xtp3'; it must be"),
        ("nowhere.csv", "nowhere.csv: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_pattern_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(TopologyError) as caught:
        read_demand(text, 3, "topoopt: traffic")
    assert str(caught.value).startswith(sentence)


def test_too_large_an_all_to_all_is_refused() -> None:
    for text in ("all_to_all", "ep5000", "ep500xdp10"):
        with pytest.raises(TopologyError, match="makes more than 1000000 pairs"):
            read_demand(text, 5000, "traffic")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("t.csv", "0,1\n1,0\n", "the matrix has 2 lines, but there are 3 ranks"),
        ("t.csv", "0,1,2\n1,0\n1,2,3\n", "line 2: it has 2 numbers; it must have 3, one per rank"),
        ("t.csv", "0,1,2\n1,0,x\n1,2,3\n", 'line 2, number 3: "x" is not a number of bytes'),
        ("t.csv", "0,1,2\n1,0,-4\n1,2,3\n", 'line 2, number 3: "-4" is not a number of bytes'),
        ("t.csv", "0,1,nan\n1,0,4\n1,2,3\n", 'line 1, number 3: "nan" is not a number of bytes'),
        ("t.json", "[1, 2, 3]", "row 1: it has 1; it must have 3, one per rank"),
        ("t.json", "[[0,0,0],[0,0,0],[0,0,true]]", "row 3, number 3: true is not a number of bytes"),
        ("t.json", "[[0", "not JSON at line 1"),
        ("t.json", "7", "it holds 7; it must be a matrix or an object"),
        ("t.json", '{"sent": []}', 'it has the field "sent"; known are all_reduce, all_to_all, sends'),
        ("t.json", '{"sends": 4}', '"sends" is 4; it must be a list'),
        ("t.json", '{"sends": [[0, 1]]}', '"sends" 0: it is [0, 1]; it must be [from, to, bytes]'),
        ("t.json", '{"sends": [[0, 3, 1]]}', '"sends" 0: 3 is not a rank; ranks are 0 to 2'),
        ("t.json", '{"sends": [[0, 1.0, 1]]}', '"sends" 0: 1.0 is not a rank'),
        ("t.json", '{"all_reduce": [{"members": [0, 1]}]}', 'it must be an object of "members" and "bytes"'),
        ("t.json", '{"all_reduce": [{"members": [1, 1], "bytes": 1}]}', '"all_reduce" 0: a rank is a member twice'),
        ("t.json", '{"all_to_all": [{"members": [0, -1], "bytes": 1}]}', '"all_to_all" 0: -1 is not a rank'),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_where_it_is_wrong(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(TopologyError) as caught:
        read_demand(str(path), 3, "traffic")
    assert str(path) in str(caught.value)
    assert sentence in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(TopologyError, match="not a text file: byte 0 is not UTF-8"):
        read_demand(str(path), 3, "traffic")
