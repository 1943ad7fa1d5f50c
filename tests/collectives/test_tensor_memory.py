"""What the core says about a torch tensor's memory is what torch says, for views of all kinds; None for all others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from syntony.collectives.buffers import UsageError, buffer_of

torch = pytest.importorskip("torch")

TYPES = [name for name in _core.DTYPES if hasattr(torch, name)]

VIEWS = {
    "itself": lambda t: t,
    "transposed": lambda t: t.mT if t.ndim > 1 else t,
    "narrowed": lambda t: t[1:] if t.ndim > 0 else t,
    "strided": lambda t: t[..., ::2] if t.ndim > 0 else t,
    "expanded": lambda t: t.expand(3, *t.shape),
    "negative": torch._neg_view,
    "conjugate": lambda t: t.conj(),
}


@given(shape=st.lists(st.integers(0, 4), max_size=4), name=st.sampled_from(TYPES), view=st.sampled_from(sorted(VIEWS)))
def test_memory_of_tensors(shape: list[int], name: str, view: str) -> None:
    whole = torch.empty(shape, dtype=getattr(torch, name))
    if view == "negative" and (whole.dtype == torch.bool or not whole.dtype.is_signed):
        return
    tensor = VIEWS[view](whole)
    plain = tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
    expected = (tensor.data_ptr(), tensor.numel(), name, True) if plain and tensor.numel() > 0 else None
    assert _core.contiguous(tensor) == expected
    if plain:
        assert buffer_of(tensor, "it", writable=True)[:3] == (tensor.data_ptr(), tensor.numel(), name)
    else:
        with pytest.raises(UsageError):
            buffer_of(tensor, "it", writable=True)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(4, device="meta"),
        torch.zeros(4).to_sparse(),
        torch.nn.Parameter(torch.zeros(4)),
        torch.zeros(4, dtype=torch.uint8).view(torch.bits8),
        torch.zeros(4).numpy().tolist(),
    ],
    ids=["meta", "sparse", "subclass", "bits", "list"],
)
def test_other_objects_are_left_to_python(tensor: object) -> None:
    assert _core.contiguous(tensor) is None
