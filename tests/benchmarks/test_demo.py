"""The parts of the demonstration: its text, its picture, and its model."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
import pytest

from syntony.benchmarks.demo.picture import sparkline
from syntony.benchmarks.demo.text import batch, standard_library


def test_the_text_is_the_standard_librarys_own() -> None:
    text = standard_library(1 << 20)
    assert text.size == 1 << 20
    first = min(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    assert text.tobytes().startswith(first.read_bytes())


def test_a_batch_asks_for_the_next_byte_and_repeats_itself() -> None:
    text = standard_library(1 << 16)
    given, wanted = batch(text, step=3, rank=1, rows=5, context=16)
    assert given.shape == wanted.shape == (5, 16)
    assert np.array_equal(given[:, 1:], wanted[:, :-1])
    again, _ = batch(text, step=3, rank=1, rows=5, context=16)
    other, _ = batch(text, step=3, rank=2, rows=5, context=16)
    assert np.array_equal(given, again)
    assert not np.array_equal(given, other)


def test_a_sparkline_goes_from_low_to_high() -> None:
    assert sparkline([0.0, 0.5, 1.0], 0.0, 1.0) == "▁▅█"
    assert sparkline([-1.0, 9.0], 0.0, 1.0) == "▁█"
    assert sparkline([2.0, 2.0], 2.0, 2.0) == "▁▁"


def test_the_model_begins_at_chance_and_sees_no_future() -> None:
    torch = pytest.importorskip("torch")
    from syntony.benchmarks.demo.model import Shape, Transformer

    torch.manual_seed(7)
    shape = Shape(layers=2, width=32, heads=2, context=16)
    model = Transformer(shape)
    given = torch.randint(0, 256, (4, 16))
    loss = model(given, torch.randint(0, 256, (4, 16)))
    assert loss.item() == pytest.approx(np.log(256), rel=0.05)
    later = given.clone()
    later[:, 8:] = (later[:, 8:] + 1) % 256
    blocks = model.blocks
    with torch.no_grad():
        hidden, changed = (blocks(model.embedding(x) + model.position) for x in (given, later))
    assert torch.equal(hidden[:, :8], changed[:, :8])
    assert not torch.equal(hidden[:, 8:], changed[:, 8:])
