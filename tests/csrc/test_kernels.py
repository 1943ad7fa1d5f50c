"""The kernels against torch and NumPy, bit for bit, and every instruction set of this machine against the others."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from tests.programs import program

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
COMPLEX = ("complex32", "complex64", "complex128")
#: NaN as the kernels store it: one pattern per format, so that ranks on unlike machines agree in every bit.
CANONICAL_NAN = {
    "float16": 0x7E00,
    "bfloat16": 0x7FC0,
    "float32": 0x7FC00000,
    "float64": 0x7FF8000000000000,
    "float8_e4m3fn": 0x7F,
    "float8_e5m2": 0x7F,
    "float8_e4m3fnuz": 0x80,
    "float8_e5m2fnuz": 0x80,
    "float8_e8m0fnu": 0xFF,
}
#: What a complex number is made of.
PART = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}

SUPPORTED = [(dtype, op) for dtype in _core.DTYPES for op in _core.REDUCE_OPS if _core.supports(dtype, op)]

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@pytest.fixture
def rng() -> np.random.Generator:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed}")
    return np.random.default_rng(seed)


def from_a_line(data: Bytes) -> Bytes:
    """A copy that begins at a cache line."""
    memory = np.empty(data.size + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    memory[begin : begin + data.size] = data
    return memory[begin : begin + data.size]


def as_torch(dtype: str, data: Bytes) -> torch.Tensor:
    return torch.from_numpy(data).view(getattr(torch, dtype))


def as_bytes(tensor: torch.Tensor) -> Bytes:
    return np.asarray(tensor.contiguous().view(torch.uint8).numpy())


def codes(dtype: str, data: Bytes) -> np.ndarray[Any, Any]:
    return data.view(f"u{min(_core.itemsize(dtype), 8)}")


def narrowed(dtype: str, wide: torch.Tensor) -> Bytes:
    """Torch's rounding; e4m3fn saturates as since torch 2.13, whatever the version."""
    return as_bytes((wide.clamp(-448, 448) if dtype == "float8_e4m3fn" else wide).to(getattr(torch, dtype)))


def random_operand(rng: np.random.Generator, dtype: str, count: int) -> Bytes:
    """Half arbitrary bits (NaN, infinities and subnormals among them), half numbers of moderate size."""
    if dtype == "bool":
        return rng.integers(0, 2, count, dtype=np.uint8)
    bits = rng.integers(0, 256, count * _core.itemsize(dtype), dtype=np.uint8)
    if dtype in INTEGERS or dtype == "float8_e8m0fnu":
        return bits
    part = PART.get(dtype, dtype)
    moderate = as_bytes(torch.from_numpy(rng.normal(0, 4, bits.size // _core.itemsize(part))).to(getattr(torch, part)))
    size = _core.itemsize(part)
    choose = rng.random(bits.size // size) < 0.5
    return np.where(choose[:, None], bits.reshape(-1, size), moderate.reshape(-1, size)).reshape(-1).copy()


def fold_integers(dtype: str, op: str, operands: Sequence[Bytes]) -> Bytes:
    functions: dict[str, Callable[..., Any]] = {
        "sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum,
        "band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor,
    }  # fmt: skip
    return np.asarray(functools.reduce(functions[op], [x.view(dtype) for x in operands])).view(np.uint8)


def fold_booleans(op: str, operands: Sequence[Bytes]) -> Bytes:
    functions: dict[str, Callable[..., Any]] = {
        "sum": np.logical_or, "max": np.logical_or, "bor": np.logical_or,
        "product": np.logical_and, "min": np.logical_and, "band": np.logical_and, "bxor": np.logical_xor,
    }  # fmt: skip
    return np.asarray(functools.reduce(functions[op], [x.view(np.bool_) for x in operands])).view(np.uint8)


def fold_floats(dtype: str, op: str, operands: Sequence[Bytes]) -> Bytes:
    """Widen, accumulate over all operands, round once."""
    functions: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "sum": torch.add,
        "product": torch.mul,
        "min": torch.minimum,
        "max": torch.maximum,
    }
    wide = torch.float64 if dtype == "float64" else torch.float32
    result = functools.reduce(functions[op], [as_torch(dtype, x).to(wide) for x in operands])
    return narrowed(dtype, result)


def fold_complex_product(dtype: str, operands: Sequence[Bytes]) -> Bytes:
    part = PART[dtype]
    wide = np.float64 if part == "float64" else np.float32
    parts: list[np.ndarray[Any, Any]] = [as_torch(part, x).numpy().astype(wide).reshape(-1, 2) for x in operands]
    with np.errstate(all="ignore"):
        a = parts[0]
        for b in parts[1:]:
            real = a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1]
            imag = a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0]
            a = np.stack([real, imag], axis=1)
        return narrowed(part, torch.from_numpy(a.reshape(-1)))


def expected_reduction(dtype: str, op: str, operands: Sequence[Bytes]) -> Bytes:
    if len(operands) == 1:
        return operands[0]
    if dtype in INTEGERS:
        return fold_integers(dtype, op, operands)
    if dtype == "bool":
        return fold_booleans(op, operands)
    if dtype in COMPLEX:
        return fold_complex_product(dtype, operands) if op == "product" else fold_floats(PART[dtype], op, operands)
    return fold_floats(dtype, op, operands)


def assert_same(dtype: str, actual: Bytes, expected: Bytes, *, zero_signs: bool = True) -> None:
    """Equal bits; where `expected` is NaN, the canonical NaN. Without `zero_signs`, -0 equals +0."""
    part = PART.get(dtype, dtype)
    if part not in CANONICAL_NAN:
        np.testing.assert_array_equal(actual.view(expected.dtype), expected)
        return
    wanted = codes(part, expected).copy()
    values = as_torch(part, expected).to(torch.float64).numpy()
    wanted[np.isnan(values)] = CANONICAL_NAN[part]
    got = codes(part, actual).copy()
    if not zero_signs and part != "float8_e8m0fnu":  # which has no zero
        wanted[values == 0] = 0
        got[as_torch(part, actual).to(torch.float64).numpy() == 0] = 0
    np.testing.assert_array_equal(got, wanted)


def test_every_dtype_of_torch_is_named() -> None:
    assert len(_core.DTYPES) == 21
    for name in _core.DTYPES:
        assert _core.itemsize(name) == getattr(torch, name).itemsize


def test_which_operations_have_a_meaning() -> None:
    every = set(_core.REDUCE_OPS)
    for dtype in _core.DTYPES:
        if dtype in INTEGERS or dtype == "bool":
            wanted = every
        elif dtype in COMPLEX:
            wanted = {"sum", "product"}
        elif dtype == "float8_e8m0fnu":  # bare exponents: ordered, but no sums
            wanted = {"min", "max"}
        else:
            wanted = {"sum", "product", "min", "max"}
        assert {op for op in every if _core.supports(dtype, op)} == wanted, dtype


@pytest.mark.parametrize(("dtype", "op"), SUPPORTED)
def test_reduce(dtype: str, op: str, rng: np.random.Generator) -> None:
    size = _core.itemsize(dtype)
    for operands in range(1, 6):
        for count in (1, 7, 129, 1031):
            sources = [random_operand(rng, dtype, count) for _ in range(operands)]
            expected = expected_reduction(dtype, op, sources)
            # Whole elements before and after must stay as they are; the extra one in front upsets vector alignment.
            frame = np.full((count + 2) * size, 0xA5, np.uint8)
            results = [frame[size:-size]]
            _core.reduce(dtype, op, results[0], sources)
            assert (frame[:size] == 0xA5).all()
            assert (frame[-size:] == 0xA5).all()
            for first in (0, 16, size):  # at the beginning of a cache line, within one, anywhere
                frame = from_a_line(np.full(first + (count + 1) * size, 0xA5, np.uint8))
                results.append(frame[first:-size])
                also = np.full_like(frame, 0xA5)
                _core.reduce(dtype, op, results[-1], sources, past=True, also=also[first:-size])
                assert (frame[:first] == 0xA5).all()
                assert (frame[-size:] == 0xA5).all()
                np.testing.assert_array_equal(also, frame)
            for k in range(operands):  # in place of any source
                aliased = [source.copy() for source in sources]
                _core.reduce(dtype, op, aliased[k], aliased)
                results.append(aliased[k])
            for result in results:
                if operands == 1:
                    np.testing.assert_array_equal(result, expected)  # a copy keeps every bit
                else:
                    assert_same(dtype, result, expected, zero_signs=op not in ("min", "max"))


@pytest.mark.parametrize(("dtype", "op"), SUPPORTED)
def test_several_pages_at_a_time(dtype: str, op: str, rng: np.random.Generator) -> None:
    """The same bits as in order: for whole groups of pages and rests, from any place, in place, too."""
    size = _core.itemsize(dtype)
    for operands in (2, 3):
        count = int(rng.integers(1, (80 << 10) // size))
        sources = [random_operand(rng, dtype, count) for _ in range(operands)]
        expected = np.empty_like(sources[0])
        _core.reduce(dtype, op, expected, sources)
        first = int(rng.integers(0, 64)) // size * size
        frame = from_a_line(np.full(first + (count + 1) * size, 0xA5, np.uint8))
        _core.reduce(dtype, op, frame[first:-size], sources, paged=True)
        np.testing.assert_array_equal(frame[first:-size], expected)
        assert (frame[:first] == 0xA5).all()
        assert (frame[-size:] == 0xA5).all()
        aliased = [source.copy() for source in sources]
        _core.reduce(dtype, op, aliased[-1], aliased, paged=True)
        np.testing.assert_array_equal(aliased[-1], expected)


def test_nothing_to_do() -> None:
    nothing = np.empty(0, np.uint8)
    for dtype, op in SUPPORTED:
        _core.reduce(dtype, op, nothing, [nothing, nothing])
    _core.scale("bfloat16", nothing, nothing, 2.0)
    _core.divide("float64", nothing, 2)


def test_any_nonzero_byte_is_true() -> None:
    a, b = np.array([0, 2, 255, 4], np.uint8), np.array([0, 0, 1, 8], np.uint8)
    dst = np.empty(4, np.uint8)
    for op, expected in {"sum": [0, 1, 1, 1], "product": [0, 0, 1, 1], "bxor": [0, 1, 0, 0]}.items():
        _core.reduce("bool", op, dst, [a, b])
        assert dst.tolist() == expected


@pytest.mark.parametrize("op", ["min", "max"])
def test_order_operations_propagate_nan_from_either_side(op: str) -> None:
    for dtype in ("float32", "bfloat16", "float8_e8m0fnu"):
        nan = as_bytes(torch.tensor([float("nan")]).to(getattr(torch, dtype)))
        one = as_bytes(torch.tensor([1.0]).to(getattr(torch, dtype)))
        for sources in ([nan, one, one], [one, nan, one], [one, one, nan]):
            dst = np.empty_like(one)
            _core.reduce(dtype, op, dst, sources)
            assert codes(dtype, dst)[0] == CANONICAL_NAN[dtype]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("factor", [1.0, -1.0, 1 / 3, 0.7, 1.75, 3e-3, 1e-6, 300.0, 7e4, 1e30])
def test_every_code_widens_and_rounds_as_torch_does(dtype: str, factor: float) -> None:
    bits = 8 * _core.itemsize(dtype)
    source = np.arange(2**bits, dtype=f"u{bits // 8}").view(np.uint8)
    result = np.empty_like(source)
    _core.scale(dtype, result, source, factor)
    wide = as_torch(dtype, source).float() * torch.tensor(factor, dtype=torch.float32)
    assert_same(dtype, result, narrowed(dtype, wide))


@pytest.mark.parametrize("dtype", [name for name in NARROW if name.startswith("float8")])
@pytest.mark.parametrize("op", ["sum", "product", "min", "max"])
def test_every_pair_of_float8_codes(dtype: str, op: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    pairs = [np.repeat(every, 256), np.tile(every, 256)]
    result = np.empty(65536, np.uint8)
    _core.reduce(dtype, op, result, pairs)
    assert_same(dtype, result, fold_floats(dtype, op, pairs), zero_signs=op not in ("min", "max"))


@given(
    dtype=st.sampled_from(["float16", "bfloat16"]),
    op=st.sampled_from(["sum", "product", "min", "max"]),
    rows=st.integers(2, 5).flatmap(
        lambda k: st.lists(st.tuples(*[st.integers(0, 0xFFFF)] * k), min_size=1, max_size=70)
    ),
)
def test_bit_patterns_of_half_formats(dtype: str, op: str, rows: list[tuple[int, ...]]) -> None:
    sources = [np.array(column, np.uint16).view(np.uint8) for column in zip(*rows, strict=True)]
    result = np.empty_like(sources[0])
    _core.reduce(dtype, op, result, sources)
    assert_same(dtype, result, fold_floats(dtype, op, sources), zero_signs=op not in ("min", "max"))


def test_overflow() -> None:
    largest = {"float16": 0x7BFF, "float8_e4m3fn": 0x7E, "float8_e5m2": 0x7B, "float8_e4m3fnuz": 0x7F}
    overflow = {"float16": 0x7C00, "float8_e4m3fn": 0x7E, "float8_e5m2": 0x7C, "float8_e4m3fnuz": 0x80}
    for dtype, code in largest.items():
        operand = np.array([code], f"u{_core.itemsize(dtype)}").view(np.uint8)
        result = np.empty_like(operand)
        _core.reduce(dtype, "sum", result, [operand, operand])
        assert codes(dtype, result)[0] == overflow[dtype]


def test_narrow_formats_round_once() -> None:
    # 256 + 1 + 1 in bfloat16 (8 significant bits): rounding per step loses both ones, rounding once keeps them.
    terms = [as_bytes(torch.tensor([x], dtype=torch.bfloat16)) for x in (256.0, 1.0, 1.0)]
    dst = np.empty(2, np.uint8)
    _core.reduce("bfloat16", "sum", dst, terms)
    assert as_torch("bfloat16", dst).item() == 258.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", *COMPLEX, *NARROW[2:]])
def test_scale_and_divide(dtype: str, rng: np.random.Generator) -> None:
    part = PART.get(dtype, dtype)
    wide = torch.float64 if part == "float64" else torch.float32
    for count in (1, 33, 1031):
        source = random_operand(rng, dtype, count)
        widened = as_torch(part, source).to(wide)
        scaled = narrowed(part, widened * torch.tensor(0.3, dtype=wide))
        quotient = narrowed(part, widened / torch.tensor(3, dtype=wide))
        dst = np.empty_like(source)
        _core.scale(dtype, dst, source, 0.3)
        assert_same(dtype, dst, scaled)
        in_place = source.copy()
        _core.scale(dtype, in_place, in_place, 0.3)
        assert_same(dtype, in_place, scaled)
        _core.divide(dtype, source, 3)
        assert_same(dtype, source, quotient)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("divisor", [1, 2, 7, 300, 2**40])
def test_integer_division_truncates_toward_zero(dtype: str, divisor: int, rng: np.random.Generator) -> None:
    data = random_operand(rng, dtype, 101)
    values = [int(x) for x in data.view(dtype)]
    expected = [(abs(x) // divisor) * (1 if x >= 0 else -1) for x in values]
    _core.divide(dtype, data, divisor)
    assert data.view(dtype).tolist() == expected


def test_refusals() -> None:
    four, six = np.zeros(4, np.uint8), np.zeros(6, np.uint8)
    with pytest.raises(ValueError, match="a result past the caches is none of its sources"):
        _core.reduce("float32", "sum", four, [four, np.zeros(4, np.uint8)], past=True)
    with pytest.raises(ValueError, match="band has no meaning for float32"):
        _core.reduce("float32", "band", four, [four])
    with pytest.raises(ValueError, match="max has no meaning for complex64"):
        _core.reduce("complex64", "max", np.zeros(8, np.uint8), [np.zeros(8, np.uint8)])
    with pytest.raises(ValueError, match="scaling has no meaning for int32"):
        _core.scale("int32", four, four, 2.0)
    with pytest.raises(ValueError, match="division has no meaning for bool"):
        _core.divide("bool", four, 2)
    with pytest.raises(ValueError, match="cannot divide by 0"):
        _core.divide("int32", four, 0)
    with pytest.raises(ValueError, match="unknown dtype 'float12'"):
        _core.reduce("float12", "sum", four, [four])
    with pytest.raises(ValueError, match="unknown op 'mean'"):
        _core.reduce("float32", "mean", four, [four])
    with pytest.raises(ValueError, match="at least one source"):
        _core.reduce("float32", "sum", four, [])
    with pytest.raises(ValueError, match="a source has 6 bytes, the destination 4"):
        _core.reduce("int16", "sum", four, [four, six])
    with pytest.raises(ValueError, match="6 bytes are not a whole number of float32 elements"):
        _core.reduce("float32", "sum", six, [six])
    with pytest.raises(ValueError, match="overlaps the destination"):
        _core.reduce("uint8", "sum", six[:4], [six[2:], six[2:]])


def compared(isa: str) -> subprocess.CompletedProcess[str]:
    """The kernels of an instruction set beside the portable ones (tests/csrc/kernels/main.cpp)."""
    environment = os.environ | {"SYNTONY_ISA": isa}
    return subprocess.run(
        [program("kernels")], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_every_instruction_set_gives_the_portable_bits() -> None:
    available = {"portable"}
    for isa in ("avx2", "avx512"):
        finished = compared(isa)
        if f"SYNTONY_ISA={isa} is not available here" in finished.stderr:
            continue
        assert finished.returncode == 0, finished.stdout + finished.stderr
        assert re.match(rf"{isa}, seed \d+\nok: \d{{4,}} comparisons", finished.stdout), finished.stdout
        available.add(isa)
    assert _core.kernel_isa() in available


def test_an_unknown_instruction_set_is_named() -> None:
    finished = compared("mmx")
    assert finished.returncode == 2
    assert "SYNTONY_ISA=mmx is not available here; this machine has" in finished.stderr
