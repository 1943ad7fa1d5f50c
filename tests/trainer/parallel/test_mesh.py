"""The grid of ranks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from syntony.trainer.config import Parallel  # noqa: E402
from syntony.trainer.parallel.mesh import Mesh  # noqa: E402


@pytest.mark.parametrize(
    "sizes",
    [
        Parallel(dp=2, tp=2, pp=2),
        Parallel(dp=4, cp=2, ep=4),
        Parallel(dp=4, replicas=2, zero=3, tp=2),
        Parallel(dp=2, tp=4, grid=True),
        Parallel(dp=2, cp=4, inner=2),
        Parallel(),
    ],
    ids=str,
)
def test_lanes_are_the_axes_of_one_tensor(sizes: Parallel) -> None:
    mesh = Mesh(sizes)
    ranks = torch.arange(mesh.world).view(sizes.pp, sizes.dp, sizes.cp, sizes.tp)
    data = ranks.flatten(1, 2)  # pp, data, tp
    blocks = data.unflatten(1, (-1, sizes.ep))  # pp, edp, ep, tp
    copies = data.unflatten(1, (sizes.replicas, -1))  # pp, replicas, dp, tp
    axes = {
        "tp": ranks,
        "cp": ranks.movedim(2, -1),
        "pp": ranks.movedim(0, -1),
        "ep": blocks.movedim(2, -1),
        "edp": blocks.movedim(1, -1),
        "dp": copies.movedim(2, -1),
        "replicas": copies.movedim(1, -1),
    }
    if sizes.inner > 1:
        rings = ranks.unflatten(2, (-1, sizes.inner))  # pp, dp, outer, cp, tp
        axes |= {"cp": rings.movedim(3, -1), "outer": rings.movedim(2, -1)}
    if sizes.grid:
        grid = ranks.unflatten(-1, (2, 2))
        axes |= {"row": grid, "column": grid.movedim(-2, -1)}
    for lane, along in axes.items():
        expected = along.reshape(-1, along.shape[-1]).tolist()
        assert sorted(mesh.members(lane)) == sorted(expected), lane
        assert mesh.size(lane) == along.shape[-1]
