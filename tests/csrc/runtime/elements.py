"""Values of every dtype whose sums, products and averages are exact, so that results can be compared bit by bit.

A value is thought of as an integer (a Gaussian one for complex types, an exponent for float8_e8m0fnu). Arithmetic
happens on those; `encode` gives the bytes, by the formats' definitions and by no code of the core.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from syntony import _core
from tests.csrc.runtime.group import Bytes

Values = np.ndarray[Any, Any]
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
COMPLEX = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
EIGHTH = {"float8_e4m3fn": (3, 7), "float8_e5m2": (2, 15), "float8_e4m3fnuz": (3, 8), "float8_e5m2fnuz": (2, 16)}
FLOATS = ("float16", "bfloat16", "float32", "float64", *EIGHTH)
LARGEST = 64  # of the integers that `encode` knows
PAIRS = tuple((dtype, op) for dtype in _core.DTYPES for op in _core.REDUCE_OPS if _core.supports(dtype, op))


def _eight_bits(value: int, mantissa_bits: int, bias: int) -> int:
    """The nearest float8 toward zero: exact where it matters."""
    if value == 0:
        return 0
    exponent = abs(value).bit_length() - 1
    mantissa = ((abs(value) << mantissa_bits) >> exponent) & ((1 << mantissa_bits) - 1)
    return (0x80 if value < 0 else 0) | (exponent + bias) << mantissa_bits | mantissa


@functools.cache
def _table(dtype: str) -> Bytes:
    """Row v + LARGEST: the bytes of v."""
    integers = np.arange(-LARGEST, LARGEST + 1)
    if dtype in EIGHTH:
        rows = np.array([_eight_bits(int(v), *EIGHTH[dtype]) for v in integers], np.uint8)
    elif dtype == "float8_e8m0fnu":
        rows = (integers + 127).astype(np.uint8)
    elif dtype == "bfloat16":
        rows = (integers.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        rows = integers.astype(dtype)
    return rows.view(np.uint8).reshape(len(integers), -1)


def encode(dtype: str, values: Values) -> Bytes:
    """The bytes of `values`, flat."""
    if dtype in INTEGERS or dtype == "bool":
        return np.ascontiguousarray(values.astype(dtype)).view(np.uint8).reshape(-1)
    if dtype in COMPLEX:
        part = COMPLEX[dtype]
        return encode(part, np.stack([values.real, values.imag], 1).reshape(-1))
    return np.ascontiguousarray(_table(dtype)[values.astype(np.int64) + LARGEST]).reshape(-1)


def values(rng: np.random.Generator, dtype: str, op: str, rank: int, count: int, scale: int = 1) -> Values:
    """What `rank` contributes. `scale` multiplies what is summed. At most every third rank contributes anything but the
    neutral element, so that up to nine ranks stay within three bits of mantissa."""
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, count, dtype=dtype, endpoint=True)
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if op in ("min", "max"):
        return rng.choice([-8, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 8], count)
    takes_part = (np.arange(count) + rank) % 3 == 0
    if dtype in COMPLEX:
        if op == "product":  # these never make a negative zero
            return np.where(takes_part, rng.choice([1, 1 + 1j, 2], count), 1)
        return np.where(takes_part, scale * (rng.integers(-2, 3, count) + 1j * rng.integers(-2, 3, count)), 0)
    if op == "product":
        return np.where(takes_part, rng.choice([1, -1, 2], count), 1)
    return np.where(takes_part, scale * rng.integers(-2, 3, count), 0)


def combine(dtype: str, op: str, contributions: list[Values]) -> Values:
    """The reduction, by NumPy."""
    truth = {"sum": np.logical_or, "max": np.logical_or, "bor": np.logical_or, "bxor": np.logical_xor}
    integers = {
        "sum": np.add,
        "product": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "band": np.bitwise_and,
        "bor": np.bitwise_or,
        "bxor": np.bitwise_xor,
    }
    ufunc = truth.get(op, np.logical_and) if dtype == "bool" else integers[op]
    with np.errstate(over="ignore"):
        return functools.reduce(ufunc, contributions)


def divide(dtype: str, total: Values, ranks: int) -> Values:
    """The average of an exact sum; integers truncate toward zero."""
    if dtype in INTEGERS:
        quotient = np.abs(total.astype(object)) // ranks
        return (np.sign(total.astype(object)) * quotient).astype(dtype)
    if dtype in COMPLEX:
        return total / ranks
    assert not np.any(total % ranks), "the sum was to be divisible"
    return total // ranks
