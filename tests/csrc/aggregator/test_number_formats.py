"""The arithmetic of number formats, against exact sums and against a plain reading of the papers."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _emulation
from tests.sampled import examples

Columns = st.SearchStrategy[list[np.ndarray]]
BLOCK = 256


def through(number_format: str, sources: list[np.ndarray]) -> np.ndarray:
    total = np.empty_like(sources[0])
    _emulation.sum_through_switch(number_format, total, sources)
    return total


def columns(ranks: st.SearchStrategy[int], elements: int = 12, largest: float = 3e38) -> Columns:
    numbers = st.floats(-float(np.float32(largest)), float(np.float32(largest)), width=32)

    def of(count: int) -> Columns:
        column = st.lists(numbers, min_size=elements, max_size=elements).map(lambda row: np.array(row, np.float32))
        return st.lists(column, min_size=count, max_size=count)

    return ranks.flatmap(of)


def exponent(value: float) -> int:
    """e with |value| < 2^e, as the format's blocks have it: no less than that of the least normal number."""
    return max(math.frexp(value)[1], -125) if value else -125


@examples(150)
@given(columns(st.integers(1, 9), largest=2.0**120))
def test_block_floating_point_errs_no_more_than_its_bound(sources: list[np.ndarray]) -> None:
    """Each worker errs by one unit of the block's scale at most, and the sum is rounded to float32 once."""
    ranks = len(sources)
    total = through("int32_block", sources)
    e = max(exponent(float(value)) for source in sources for value in source)
    unit = Fraction(2) ** (e - 31 + (ranks - 1).bit_length())
    for i in range(len(total)):
        exact = sum(Fraction(float(source[i])) for source in sources)
        rounding = Fraction(float(np.spacing(np.abs(total[i])))) / 2
        assert abs(Fraction(float(total[i])) - exact) <= ranks * unit + rounding


def test_blocks_have_exponents_of_their_own() -> None:
    """A huge number spoils the 255 others of its block, and none of the next."""
    source = np.full(2 * BLOCK, 1e-3, np.float32)
    source[0] = 1e30
    total = through("int32_block", [source, source])
    assert np.all(total[1:BLOCK] == 0)
    np.testing.assert_allclose(total[BLOCK:], 2 * source[BLOCK:], rtol=1e-8)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 8, 128, 1000])
def test_the_worst_case_does_not_overflow(ranks: int) -> None:
    """All workers hold the largest number of their exponent: the sum has every bit of headroom used."""
    for sign in (1, -1):
        worst = np.full(3, np.nextafter(np.float32(2.0), np.float32(0)) * sign, np.float32)
        total = through("int32_block", [worst] * ranks)
        unit = 2.0 ** (1 - 31 + (ranks - 1).bit_length())
        np.testing.assert_allclose(total, float(worst[0]) * ranks, rtol=1e-7, atol=ranks * unit)


def test_what_is_not_finite_is_nan_in_its_block_only() -> None:
    source = np.ones(2 * BLOCK, np.float32)
    for bad in (np.inf, -np.inf, np.nan):
        source[3] = bad
        total = through("int32_block", [source, np.ones_like(source)])
        assert np.all(np.isnan(total[:BLOCK]))
        assert np.all(total[BLOCK:] == 2)


def test_small_and_subnormal_numbers() -> None:
    tiny = np.array([1e-45, -1e-40, 2.0**-126, 0.0], np.float32)
    np.testing.assert_array_equal(through("int32_block", [tiny, tiny]), tiny * 2)
    assert np.array_equal(through("float32_fpisa", [tiny]), np.array([0, 0, 2.0**-126, 0], np.float32))


@examples(100)
@given(columns(st.integers(1, 5)))
def test_bfloat16_rounds_every_part_and_the_sum_once(sources: list[np.ndarray]) -> None:
    def rounded(values: np.ndarray) -> np.ndarray:
        bits = values.view(np.uint32).astype(np.uint64)
        return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)

    with np.errstate(over="ignore", invalid="ignore"):
        total = rounded(sources[0])
        for source in sources[1:]:
            total = total + rounded(source)
        expected = rounded(total)
    found = through("bfloat16", sources)
    good = np.isfinite(expected)
    np.testing.assert_array_equal(found[good], expected[good])


def fpisa(values: list[float]) -> float:
    """Yuan et al., section 3, in whole numbers: align by flooring, add, cut off what does not fit on the way out."""
    mantissa, exponent_ = 0, 0
    for value in values:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
        e = bits >> 23 & 255
        m = 0 if e == 0 else (bits & 0x7FFFFF | 0x800000) * (-1 if bits >> 31 else 1)
        if e == 0:
            continue
        if e > exponent_:
            mantissa = math.floor(Fraction(mantissa, 2 ** min(e - exponent_, 31))) + m
            exponent_ = e
        else:
            mantissa += math.floor(Fraction(m, 2 ** min(exponent_ - e, 31)))
    if mantissa == 0:
        return 0.0
    sign, size = (-1 if mantissa < 0 else 1), abs(mantissa)
    above = size.bit_length() - 24
    if exponent_ + above <= 0:
        return sign * 0.0
    if exponent_ + above >= 255:
        return sign * math.inf
    kept = size >> above if above > 0 else size << -above
    return sign * math.ldexp(kept, exponent_ + above - 150)


@examples(150)
@given(columns(st.integers(1, 6), elements=8))
def test_fpisa_adds_as_published(sources: list[np.ndarray]) -> None:
    expected = [fpisa([float(source[i]) for source in sources]) for i in range(len(sources[0]))]
    np.testing.assert_array_equal(through("float32_fpisa", sources), np.array(expected, np.float32))


def test_fpisa_truncates_downwards_where_float32_rounds() -> None:
    one, less = np.array([1.0], np.float32), np.array([-(2.0**-30)], np.float32)
    assert through("float32_fpisa", [one, less])[0] == np.float32(1.0) - np.float32(2.0**-23)
    assert (one + less)[0] == 1.0


def test_loss_of_precision_by_format() -> None:
    """Of numbers of like size, as gradients are: blocks of integers lose less than float32 does, bfloat16 most."""
    rng = np.random.default_rng(7)
    sources = [rng.standard_normal(1 << 16).astype(np.float32) for _ in range(8)]
    exact = np.sum([source.astype(np.float64) for source in sources], axis=0)
    error = {
        number_format: float(np.abs(through(number_format, sources) - exact).max())
        for number_format in ("float32", "int32_block", "float32_fpisa", "bfloat16")
    }
    assert error["int32_block"] < error["float32"] < error["float32_fpisa"] < error["bfloat16"] < 0.2, error


@pytest.mark.parametrize(
    ("number_format", "ranks", "sentence"),
    [
        ("int4", 1, "unknown number format 'int4'; known are float32"),
        ("int32", 1, "int32 does not carry float32"),
        ("float32_fpisa", 129, "float32_fpisa adds 1 to 128 sources, not 129"),
        ("int32_block", 0, "adds 1 to 1024 sources, not 0"),
    ],
)
def test_what_cannot_be_added_is_refused(number_format: str, ranks: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _emulation.sum_through_switch(number_format, np.empty(1, np.float32), [np.ones(1, np.float32)] * ranks)


def test_carries() -> None:
    assert _emulation.carries("int32_block", "float32")
    assert _emulation.carries("bfloat16", "bfloat16")
    assert not _emulation.carries("float32", "float64")
    assert not _emulation.carries("int32_block", "int32")
