"""The model's layers against plain torch autograd of the same functions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from syntony.overlap.step.graph import CommSpec, LayerSpec  # noqa: E402
from syntony.overlap.step.op import Kind  # noqa: E402
from syntony.trainer.config import Model  # noqa: E402
from syntony.trainer.model.layer import Branch, ForwardContext, merged  # noqa: E402
from syntony.trainer.model.model import transformer  # noqa: E402
from syntony.trainer.parallel.tensor_parallel.sums import Enter  # noqa: E402

MODEL = Model(blocks=2, width=64, heads=2, hidden=96, context=16)
VARIANTS = {
    "llama": MODEL,
    "gpt": Model(blocks=1, width=64, heads=2, hidden=96, context=16, activation="gelu", positions="learned"),
}


class Plain(ForwardContext):
    """Weights that autograd differentiates, all of them."""

    def linear(self, x, name, block=None, source=0):
        return torch.nn.functional.linear(x, self.matrix(name, block))

    def __getitem__(self, name):
        return self.weights[name]


def run(branch: Branch, context: ForwardContext, *tensors):
    (segment,) = merged([branch]).segments
    return segment(context, *tensors)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_those_of_autograd(variant: str) -> None:
    torch.manual_seed(3)
    layers = transformer(VARIANTS[variant])
    weights = [{w.name: w.begin(1, layer.name) for w in layer.weights} for layer in layers]
    tokens, targets = torch.randint(256, (2, 2, 16))

    plain = [{name: value.clone().requires_grad_() for name, value in layer.items()} for layer in weights]
    x = tokens
    for layer, mine in zip(layers, plain, strict=True):
        (x,) = run(layer, Plain(mine), *((x, targets) if layer.name == "head" else (x,)))
    loss = x
    loss.backward()

    uses, inputs, outputs = [], [], []
    x = tokens
    for layer, mine in zip(layers, weights, strict=True):
        context = ForwardContext(mine)
        tensor = x.detach().requires_grad_(x.is_floating_point())
        (x,) = run(layer, context, *((tensor, targets) if layer.name == "head" else (tensor,)))
        uses.append(context), inputs.append(tensor), outputs.append(x)
    assert x.item() == loss.item()

    gradient = torch.ones(())
    for layer, context, entered, left, expected in list(zip(layers, uses, inputs, outputs, plain, strict=True))[::-1]:
        wanted = [*context.leaves.values(), *([entered] if entered.requires_grad else [])]
        found = torch.autograd.grad(left, wanted, gradient)
        for name, value in zip(context.leaves, found, strict=False):
            torch.testing.assert_close(value, expected[name].grad, rtol=1e-5, atol=1e-7)
        made = set(context.leaves)
        for product in context.products:
            into = torch.empty_like(expected[product.weight])
            product.into(into)
            torch.testing.assert_close(into, expected[product.weight].grad, rtol=1e-5, atol=1e-7)
            made.add(product.weight)
        assert made == {weight.name for weight in layer.weights}
        gradient = found[-1]


def test_blocks_of_weights_are_cut_from_the_same_first_values() -> None:
    layer = transformer(MODEL)[1]
    whole = layer.weight("qkv")
    parts = [whole.split(1, index, 4).begin(5, layer.name) for index in range(4)]
    assert torch.equal(torch.cat(parts, 1), whole.begin(5, layer.name))
    assert not torch.equal(whole.begin(6, layer.name), whole.begin(5, layer.name))
    assert whole.split(1, 3, 4).split(2, 1, 2).offset == (0, 48, 32)


def test_segments_without_a_transfer_between_them_are_one() -> None:
    layer = transformer(MODEL)[1]
    assert len(layer.segments) == 5
    assert len(merged([layer]).segments) == 1
    cut = layer.with_point(1, Enter("enter", 2, sequence=True))
    moved = CommSpec("enter", "tp", Kind.ALL_GATHER, Kind.REDUCE_SCATTER, 8)
    assert len(merged([cut], LayerSpec("block_0", 0, (1.0, 1.0), (moved,))).segments) == 2
    with pytest.raises(AssertionError):
        merged([cut])
