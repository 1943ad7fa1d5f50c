"""The reference: what it calls right is right, and what it calls exact is exact in every order of summation."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.benchmarks.bench.elements import ELEMENTS, Element
from syntony.benchmarks.bench.reference import OPERATIONS, PERIOD, Reference, contribution, fill, wrong_elements
from syntony.benchmarks.bench.shapes import SHAPES

NATIVE = [element for element in ELEMENTS.values() if element.numpy_native]
RANKS = st.integers(1, 40)


@given(st.sampled_from(list(ELEMENTS.values())), st.sampled_from(["sum", "avg", "prod"]), RANKS)
def test_every_partial_result_is_an_integer_the_type_can_hold(element: Element, operation: str, ranks: int) -> None:
    parts = [contribution(operation, rank, ranks, element.exact) for rank in range(ranks)]
    whole = np.prod(parts, axis=0) if operation == "prod" else np.sum(parts, axis=0)
    # Contributions are not negative (products: at least one), so whole results bound all partial ones.
    assert min(part.min() for part in parts) >= (1 if operation == "prod" else 0)
    assert whole.max() <= max(element.exact, 8 if operation == "prod" else 0)
    if operation == "avg":
        assert not (whole % ranks).any()


@given(st.sampled_from(list(ELEMENTS.values())), st.sampled_from([None, *OPERATIONS[:5]]), st.integers(2, 9))
def test_no_rank_sends_what_another_sends_and_no_answer_is_trivial(
    element: Element, operation: str | None, ranks: int
) -> None:
    if operation == "avg" and element.exact < ranks:
        return  # nothing but zeros is exact there
    parts = [contribution(operation, rank, ranks, element.exact) for rank in range(ranks)]
    assert all((a != b).any() for i, a in enumerate(parts) for b in parts[:i])
    assert all(np.unique(part).size > 1 for part in parts)


@pytest.mark.parametrize("element", NATIVE, ids=lambda element: element.name)
@pytest.mark.parametrize("operation", ["sum", "prod", "max", "min"])
def test_the_combined_answer_is_numpys_in_the_type_itself(element: Element, operation: str) -> None:
    reference = Reference(element, operation, 5)
    reduce = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[operation].reduce
    for order in ([0, 1, 2, 3, 4], [3, 1, 4, 0, 2]):
        answer = reduce([reference.sent(rank) for rank in order], dtype=element.storage)
        assert np.array_equal(answer, reference.combined())


@pytest.mark.parametrize("name", ["bfloat16", "f8e4m3", "f8e5m2"])
def test_narrow_floats_are_written_as_torch_writes_them(name: str) -> None:
    torch = pytest.importorskip("torch")
    element = ELEMENTS[name]
    values = np.arange(element.exact + 1, dtype=np.int64)
    memory = element.encode(values)
    assert memory.dtype == element.storage
    tensor = element.as_tensor(memory)
    assert tensor.dtype == getattr(torch, element.torch)
    assert np.array_equal(tensor.double().numpy(), values)
    tensor.view(torch.uint8)[:] = 0
    assert not memory.any()  # a view, not a copy


@given(st.integers(0, 3 * PERIOD), st.integers(0, 3 * PERIOD), st.data())
def test_every_changed_element_is_counted(start: int, size: int, data: st.DataObject) -> None:
    period = Reference(ELEMENTS["float"], "sum", 3).sent(1)
    memory = np.zeros(size, np.float32)
    fill(memory, period, start)
    assert wrong_elements(memory, period, start) == 0
    changed = data.draw(st.lists(st.integers(0, max(0, size - 1)), max_size=5 if size else 0, unique=True))
    memory[changed] += 0.5
    assert wrong_elements(memory, period, start) == len(changed)


def test_a_shift_by_one_element_does_not_go_unnoticed() -> None:
    period = Reference(ELEMENTS["int32"], None, 2).sent(0)
    memory = np.zeros(1000, np.int32)
    fill(memory, period, 1)
    assert wrong_elements(memory, period, 0) > 900


@given(st.sampled_from(list(SHAPES.values())), st.integers(0, 1 << 20), RANKS, st.sampled_from([1, 2, 4, 8]))
def test_blocks_are_aligned_equal_and_within_the_size(shape: object, size: int, ranks: int, item_bytes: int) -> None:
    block = shape.block(size, ranks, item_bytes)  # type: ignore[attr-defined]
    counts = shape.counts(block, ranks)  # type: ignore[attr-defined]
    assert max(counts) * item_bytes <= size
    if max(counts) > block:
        assert block * item_bytes % 16 == 0
        assert size - max(counts) * item_bytes < ranks * (16 + item_bytes)


def test_bus_factors_are_those_of_nccl_tests() -> None:
    factors = {name: shape.bus_factor(4) for name, shape in SHAPES.items()}
    assert factors.pop("all_reduce") == Fraction(3, 2)
    assert {name for name, factor in factors.items() if factor == 1} == {"broadcast", "reduce", "sendrecv"}
    assert set(factors.values()) == {Fraction(3, 4), Fraction(1)}
    assert SHAPES["all_reduce"].bus_factor(1) == 0
