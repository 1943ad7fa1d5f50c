"""An Op's key: `parse` and `str` are inverse to each other, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.overlap.step.op_key import OpKey

NUMBERS = st.integers(0, 10**8)
PARTS = st.lists(NUMBERS, max_size=2).map(tuple)


@st.composite
def keys(draw: st.DrawFn) -> OpKey:
    """What generators and passes make."""
    numbers = draw(st.lists(NUMBERS, min_size=1, max_size=3))
    kind, direction = draw(st.sampled_from(["fwd", "bwd_x", "gather", "enter"])), draw(st.sampled_from(["", "f", "b"]))
    key = OpKey(kind, *(*numbers, -1, -1)[:3], direction, draw(PARTS))
    others = [OpKey(kind, layer, part=draw(PARTS)) for layer in draw(st.lists(NUMBERS, max_size=3))]
    return OpKey.union((key, *others))


@given(keys())
def test_parse_reads_what_str_writes(key: OpKey) -> None:
    assert OpKey.parse(str(key)) == key


@given(st.text() | st.text("a.+/01f"))
def test_str_writes_what_parse_has_read(text: str) -> None:
    assert str(OpKey.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("fwd.3.0.1/0", OpKey("fwd", 3, 0, 1, part=(0,))),
        ("dispatch.3.0.f", OpKey("dispatch", 3, 0, direction="f")),
        ("reduce.3/0/1", OpKey("reduce", 3, part=(0, 1))),
        ("reduce.9+8+7/2", OpKey("reduce", 9, others=(OpKey("reduce", 8), OpKey("reduce", 7, part=(2,))))),
        ("gemm/3", OpKey("gemm", part=(3,))),
        ("reduce.x3", OpKey("reduce", direction="x3")),
        ("all reduce", OpKey("all reduce")),
        ("a.", OpKey("a.")),
    ],
)
def test_texts(text: str, key: OpKey) -> None:
    assert OpKey.parse(text) == key


@given(keys(), NUMBERS)
def test_a_part_is_of_the_whole(key: OpKey, number: int) -> None:
    assert str(key.cut(number)) == f"{key}/{number}"
    assert key.cut(number).members[:-1] == key.members[:-1]


def test_an_error_shows_the_text() -> None:
    assert f"{OpKey('fwd', 1, 0)!r} and {OpKey('opt', 1)}" == "'fwd.1.0' and opt.1"
