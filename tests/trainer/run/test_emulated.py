"""Emulated computing takes the seconds it was given, whole or in parts, and sends as many rows to every expert."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from syntony.trainer.config import Config, Data, Model, Parallel, Run  # noqa: E402
from syntony.trainer.model.layer import SHADOW, ForwardContext, Layer  # noqa: E402
from syntony.trainer.parallel.mesh import Mesh  # noqa: E402
from syntony.trainer.parallel.parallel import parallelized  # noqa: E402
from syntony.trainer.run import emulated  # noqa: E402

ROWS = 4
MODEL = Model(blocks=1, width=16, heads=2, hidden=32, context=8, experts=4, top=2)
FORWARD = 0.5


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were slept, without sleeping; no time passes but in sleep."""
    naps: list[float] = []
    monkeypatch.setattr(emulated, "time", SimpleNamespace(sleep=naps.append, monotonic=lambda: sum(naps)))
    return naps


def layers(ep: int = 2, hot: int = 0) -> dict[str, Layer]:
    config = Config(
        MODEL,
        Data(rows=ROWS, microbatches=ep),
        parallel=Parallel(dp=ep, ep=ep),
        run=Run(compute="emulated", forward=FORWARD),
    )
    mine = parallelized(MODEL, Mesh(config.parallel), ROWS, 4, even=True, hot=hot)
    return {layer.name: layer for layer in emulated.emulated(mine, config)}


def context(layer: Layer) -> ForwardContext:
    near = layer.shadow.weights if layer.shadow is not None else ()
    names = {weight.name: weight for weight in layer.weights} | {f"{SHADOW}{weight.name}": weight for weight in near}
    return ForwardContext({name: torch.zeros(weight.shape) for name, weight in names.items()})


def test_parts_of_a_microbatch_take_their_share_of_the_seconds(slept: list[float]) -> None:
    layer = layers()["block_0"]
    x = torch.zeros(ROWS, 8, 16, requires_grad=True)
    whole, *_ = layer.segments[0](context(layer), x)
    took, back = slept.copy(), torch.autograd.grad(whole.sum(), x)
    assert whole.shape == back[0].shape == x.shape
    assert slept == [*took, *took]  # as long backward
    slept.clear()
    for part in x.detach().chunk(2):
        layer.segments[0](context(layer), part)
    assert sum(slept) == pytest.approx(sum(took))
    assert len(slept) == 2


def test_a_whole_forward_takes_what_it_was_given(slept: list[float]) -> None:
    tensors = (torch.zeros(ROWS, 8, dtype=torch.int64),)
    for name, layer in layers(ep=1).items():
        given = (*tensors, torch.zeros(ROWS, 8, dtype=torch.int64)) if name == "head" else tensors
        tensors = layer.segments[0](context(layer), *given)
    assert sum(slept) == pytest.approx(FORWARD)


def test_every_expert_gets_as_many_rows_and_what_stays_is_handed_on(slept: list[float]) -> None:
    made = layers()
    routed = made["block_0"].segments[0](context(made["block_0"]), torch.ones(ROWS, 8, 16))
    experts = made["experts_0"]
    assert [point.name for point in experts.transfers] == ["dispatch", "combine"]  # nobody asks how many
    rows, going, coming, near, asked, *_, kept = experts.segments[0](context(experts), *routed)
    assert going.tolist() == coming.tolist() == [ROWS * 8 * MODEL.top // 4] * 4
    assert kept is routed[0]
    assert len(rows) == going.sum()
    slept.clear()
    answers, handed, *_ = experts.segments[1](context(experts), rows, going, coming, near, asked)
    whole = sum(slept)
    assert handed is going
    assert answers.shape == rows.shape
    slept.clear()
    experts.segments[1](context(experts), rows[: len(rows) // 4], going // 4, coming // 4, near, asked)
    assert sum(slept) == pytest.approx(whole / 4)


def test_rows_that_stay_take_their_seconds_too(slept: list[float]) -> None:
    every = []
    for hot in (0, 2, 4):
        made = layers(hot=hot)
        routed = made["block_0"].segments[0](context(made["block_0"]), torch.ones(ROWS, 8, 16))
        slept.clear()
        arrived, *rest = made["experts_0"].segments[0](context(made["experts_0"]), *routed)
        made["experts_0"].segments[1](context(made["experts_0"]), arrived, *rest)
        # Where all experts are shadows, nothing travels, and all rows are computed as on one rank.
        assert len(arrived) == ROWS * 8 * MODEL.top * (4 - hot % 4) // 4
        every.append(sum(slept))
    assert every == pytest.approx([every[0]] * 3)


def test_what_is_done_counts_and_nobody_gives_the_processor_away_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    clock = iter((0.0, 0.25, 1.0, 2.5, 3.0, 4.0))
    monkeypatch.setattr(emulated, "time", SimpleNamespace(sleep=naps.append, monotonic=lambda: next(clock)))
    for _ in range(3):  # of 1 second a quarter is done, then more than all of it, then all
        assert emulated.lasting(1.0, abs, -7) == 7
    assert naps == [0.75]
