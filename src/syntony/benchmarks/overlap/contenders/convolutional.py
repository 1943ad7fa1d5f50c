"""Networks that most papers on the order of gradients measured, as Layers: a convolution or a matrix each.

    VGG-16, VGG-19      Simonyan and Zisserman (2014), table 1, columns D and E
    VGG-19-22K          VGG-19 for the 21,841 classes of ImageNet-22K: 229 million parameters (Poseidon's)
    ResNet-50           He et al. (2015), table 1
    AlexNet             Krizhevsky et al. (2012), section 3.5, in one column, with the groups joined

A convolution of k x k from c to d channels, that leaves s x s points: k k c d weights, 2 k k c d s s operations. A
matrix is a convolution that leaves one point; its gradient is a product of an image's c and d numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from syntony.overlap.step.graph import LayerSpec

_Row = tuple[int, int, int, int]  # k, c, d, s


def _vgg(depths: tuple[int, ...], classes: int = 1000) -> Iterator[_Row]:
    before, side = 3, 224
    for depth, wide in zip(depths, (64, 128, 256, 512, 512), strict=True):
        for _ in range(depth):
            yield 3, before, wide, side
            before = wide
        side //= 2
    yield from ((1, 512 * 7 * 7, 4096, 1), (1, 4096, 4096, 1), (1, 4096, classes, 1))


def _resnet() -> Iterator[_Row]:
    yield 7, 3, 64, 112
    before = 64
    for depth, inner, side in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(depth):
            if block == 0:
                yield 1, before, 4 * inner, side
            yield from ((1, before, inner, side), (3, inner, inner, side), (1, inner, 4 * inner, side))
            before = 4 * inner
    yield 1, 2048, 1000, 1


def _alexnet() -> Iterator[_Row]:
    yield from ((11, 3, 96, 55), (5, 96, 256, 27), (3, 256, 384, 13), (3, 384, 384, 13), (3, 384, 256, 13))
    yield from ((1, 256 * 6 * 6, 4096, 1), (1, 4096, 4096, 1), (1, 4096, 1000, 1))


NETWORKS = MappingProxyType(
    {
        "vgg-16": tuple(_vgg((2, 2, 3, 3, 3))),
        "vgg-19": tuple(_vgg((2, 2, 4, 4, 4))),
        "vgg-19-22k": tuple(_vgg((2, 2, 4, 4, 4), 21841)),
        "resnet-50": tuple(_resnet()),
        "alexnet": tuple(_alexnet()),
    }
)


def network(name: str, images: int, element: int = 4) -> tuple[LayerSpec, ...]:
    """Its Layers for a batch of so many images on a rank."""
    return tuple(
        LayerSpec(
            f"{name}.{number}",
            k * k * c * d * element,
            (2.0 * images * k * k * c * d * s * s,),
            activations=images * d * s * s * element,
            output=images * d * s * s * element,
            factors=images * (c + d) * element if s == 1 else 0,
        )
        for number, (k, c, d, s) in enumerate(NETWORKS[name])
    )
