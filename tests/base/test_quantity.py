"""Numbers as people write them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from syntony.base.quantity import bit_rate, duration, size


def test_line_rates_are_exact_bytes_per_second() -> None:
    assert bit_rate("200mbit") == 25_000_000
    assert bit_rate("1.5gbit") == 187_500_000
    assert bit_rate("1kbit") == 125
    assert bit_rate("0.001kbit") == Fraction(1, 8)


@pytest.mark.parametrize(
    "text", ["", "200", "mbit", "0mbit", "0.0gbit", "-1mbit", "1Mbit", "1 mbit", "1mbps", "1e3mbit"]
)
def test_other_line_rates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="kbit, mbit or gbit, such as 200mbit"):
        bit_rate(text)


def test_durations_are_seconds() -> None:
    assert [duration(text) for text in ("2s", "1.5ms", "20us", "0s")] == [2.0, 0.0015, 0.00002, 0.0]


@pytest.mark.parametrize("text", ["", "2", "s", "-1s", "1 s", "1min", "2S"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"a time such as 2s, 1.5ms or 20us"):
        duration(text)


def test_sizes_are_bytes() -> None:
    texts = ("0", "8", "64K", "64k", "64KiB", "64 K", "1.5M", "1G", "2T", "1B", "1e3", "64KB", "1.5MB", "1GB")
    assert [size(text) for text in texts] == [
        0,
        8,
        *[1 << 16] * 4,
        3 << 19,
        1 << 30,
        2 << 40,
        1,
        1000,
        64_000,
        1_500_000,
        10**9,
    ]


@pytest.mark.parametrize("text", ["", "K", "-1", "1Q", "1  K", "1iB", "1e40", "nan", "0x10", "1KK", "1" * 20, "٣"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="bytes such as 8, 64K or 1M"):
        size(text)
