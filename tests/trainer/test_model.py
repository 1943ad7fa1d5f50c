"""The model's layers against plain torch autograd of the same functions."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from syntony.trainer.config import Model  # noqa: E402
from syntony.trainer.model.layer import Layer, Use  # noqa: E402
from syntony.trainer.model.model import transformer  # noqa: E402

MODEL = Model(blocks=2, width=64, heads=2, hidden=96, context=16)
VARIANTS = {
    "llama": MODEL,
    "gpt": Model(blocks=1, width=64, heads=2, hidden=96, context=16, activation="gelu", positions="learned"),
}


class Plain(Use):
    """Weights that autograd differentiates, all of them."""

    def linear(self, x, name, block=None, source=0):
        return torch.nn.functional.linear(x, self.matrix(name, block))

    def __getitem__(self, name):
        return self.weights[name]


def run(layer: Layer, use: Use, *tensors):
    (segment,) = layer.fused().segments
    return segment.run(use, *tensors)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_are_those_of_autograd(variant: str) -> None:
    torch.manual_seed(3)
    layers = transformer(VARIANTS[variant], rows=2)
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
        use = Use(mine)
        tensor = x.detach().requires_grad_(x.is_floating_point())
        (x,) = run(layer, use, *((tensor, targets) if layer.name == "head" else (tensor,)))
        uses.append(use), inputs.append(tensor), outputs.append(x)
    assert x.item() == loss.item()

    gradient = torch.ones(())
    for layer, use, entered, left, expected in list(zip(layers, uses, inputs, outputs, plain, strict=True))[::-1]:
        wanted = [*use.leaves.values(), *([entered] if entered.requires_grad else [])]
        found = torch.autograd.grad(left, wanted, gradient)
        for name, value in zip(use.leaves, found, strict=False):
            torch.testing.assert_close(value, expected[name].grad, rtol=1e-5, atol=1e-7)
        made = set(use.leaves)
        for product in use.products:
            into = torch.empty_like(expected[product.weight])
            product.into(into)
            torch.testing.assert_close(into, expected[product.weight].grad, rtol=1e-5, atol=1e-7)
            made.add(product.weight)
        assert made == {weight.name for weight in layer.weights}
        gradient = found[-1]


def test_blocks_of_weights_are_cut_from_the_same_first_values() -> None:
    layer = transformer(MODEL, 1)[1]
    whole = layer.weight("qkv")
    parts = [whole.split(1, index, 4).begin(5, layer.name) for index in range(4)]
    assert torch.equal(torch.cat(parts, 1), whole.begin(5, layer.name))
    assert not torch.equal(whole.begin(6, layer.name), whole.begin(5, layer.name))
    assert whole.split(1, 3, 4).split(2, 1, 2).offset == (0, 48, 32)


def test_segments_without_a_transfer_between_them_are_one() -> None:
    layer = transformer(MODEL, 1)[1]
    assert len(layer.segments) == 5
    assert len(layer.fused().segments) == 1
    assert layer.fused().segments[0].flops == sum(segment.flops for segment in layer.segments)
