"""What groups pay on a topology is what the algorithms' closed forms say, and lanes that meet on a wire share it."""

from __future__ import annotations

import pytest

from syntony.base.command import UserError
from syntony.overlap.predict.wires import wires_of
from syntony.overlap.step.layout import Layout
from syntony.overlap.step.model_spec import model_named
from syntony.overlap.step.models import layers_of
from syntony.overlap.step.op import Kind
from syntony.overlap.step.ranks import members
from syntony.topologies.parse import parse
from syntony.trainer.config import Parallel
from syntony.trainer.parallel.mesh import Mesh


def test_a_switch_gives_closed_forms() -> None:
    found = wires_of(parse("star:8,bandwidth=1e9,alpha=1e-5"), Layout(dp=8))
    wire = found.wires["dp"].kinds
    # Every rank sends and receives 7/8 of the buffer, twice for an all_reduce.
    assert wire[Kind.REDUCE_SCATTER].beta == pytest.approx(7 / 8 / 1e9, rel=0.01)
    assert wire[Kind.ALL_REDUCE].beta == pytest.approx(2 * 7 / 8 / 1e9, rel=0.01)
    assert wire[Kind.ALL_TO_ALL].beta == pytest.approx(7 / 8 / 1e9, rel=0.01)
    assert all(line.alpha > 0 for line in wire.values())
    assert found.algorithms["dp", Kind.ALL_REDUCE]


def test_lanes_share_the_wires_on_which_they_meet() -> None:
    wires = wires_of(parse("dgx-a100:4"), Layout(tp=8, dp=2, pp=2)).wires
    assert wires["dp"].link == wires["pp"].link != wires["tp"].link
    assert wires["tp"].kinds[Kind.ALL_REDUCE].beta < wires["dp"].kinds[Kind.ALL_REDUCE].beta / 4


def test_double_rings_take_slow_wires_less_often() -> None:
    """Of 15 shifts around 16 ranks of two hosts each waits for the wires between them; of double rings one does, in
    which all ranks have a part."""

    def seconds(layout: Layout) -> float:
        wires, model = (
            wires_of(parse("dgx-a100:2"), layout).wires,
            model_named("gpt:hidden=512,blocks=1,heads=16,seq=4096"),
        )
        moves = [move for move in layers_of(model, layout)[1].transfers if move.forward is Kind.SHIFT]
        assert len(moves) == 15
        lines = [wires[move.lane].kinds[Kind.SHIFT] for move in moves]
        return sum(line.alpha + line.beta * move.bytes for line, move in zip(lines, moves, strict=True))

    assert seconds(Layout(cp=16, inner=8)) < seconds(Layout(cp=16)) / 4


def test_a_synthesised_schedule_is_taken_where_it_is_faster() -> None:
    topology, layout = parse("full:4"), Layout(dp=4)
    usual, found = wires_of(topology, layout), wires_of(topology, layout, synthesis=2.0)
    cost = [one.wires["dp"].kinds[Kind.ALL_REDUCE] for one in (usual, found)]
    assert cost[1].alpha + cost[1].beta * (16 << 20) <= cost[0].alpha + cost[0].beta * (16 << 20)
    with pytest.raises(UserError, match="has 8 ranks, but"):
        wires_of(topology, Layout(dp=8))


@pytest.mark.parametrize(
    "sizes",
    [
        {"dp": 4, "tp": 2, "pp": 2, "ep": 2},
        {"dp": 2, "cp": 2, "tp": 2, "ep": 4},
        {"dp": 8, "replicas": 2, "zero": 3},
        {"cp": 8, "inner": 2, "tp": 2},
        {"tp": 4, "grid": True, "dp": 2},
    ],
)
def test_groups_are_the_trainers(sizes: dict[str, int]) -> None:
    layout = Layout(**sizes)  # type: ignore[arg-type]
    mesh = Mesh(Parallel(**sizes))  # type: ignore[arg-type]
    for lane in layout.groups:
        mine = sorted(map(tuple, members(layout, lane).reshape(-1, layout.groups[lane]).tolist()))
        assert mine == sorted(map(tuple, mesh.members(lane))), lane
