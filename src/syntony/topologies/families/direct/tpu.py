r"""Google's TPU pods: v2 and v3 as two-dimensional tori, v4 as three-dimensional tori of cubes.

A v4 pod is 64 cubes of 4x4x4 chips with copper inside. The links on the six faces of a cube go to optical circuit
switches, which join any face of a cube to the opposite face of any cube, itself included:

          ┌────────┐    ┌────────┐    ┌────────┐
        ┌─┤ 4x4x4  ├────┤ 4x4x4  ├────┤ 4x4x4  ├─┐       a slice of 4x4x12: three cubes in a row,
        │ └────────┘    └────────┘    └────────┘ │       the last joined to the first
        └──────────────── OCS ───────────────────┘

So a slice whose sizes are multiples of 4 is a torus, whichever cubes it is made of, and if its shape is n x n x 2n or
n x 2n x 2n, the switches can also close it with a twist (picture in `twisted.py`). A slice smaller than a cube has open
ends. On v2 and v3 the wiring is fixed: a slice wraps around only in dimensions in which it is as long as the pod. The
optical switches are mirrors, so a circuit is one link, with no node in between.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from syntony.base.quantity import flag, rate, seconds, shape
from syntony.topologies.families.direct.grid import grid
from syntony.topologies.families.direct.twisted import twistable, twisted_torus
from syntony.topologies.families.family import Family, Parameter
from syntony.topologies.graph.wiring import ABSTRACT_ALPHA, require
from syntony.topologies.topology import Topology

_CUBE = 4
_POD_CUBES = 64


def _planar(name: str, pod: int, link: Fraction) -> Callable[..., Topology]:
    def build(
        shape: tuple[int, ...] = (pod, pod), bandwidth: Fraction = link, alpha: float = ABSTRACT_ALPHA
    ) -> Topology:
        """A slice of the pod; it wraps around in dimensions in which it spans the pod. Symmetry as `grid`."""
        written = "x".join(map(str, shape))
        require(
            len(shape) == 2 and all(size >= 1 and pod % size == 0 for size in shape),
            f"{name}: shape is {written}; it must be two powers of two up to {pod}, such as {pod}x{pod}",
        )
        return grid(name, shape, (bandwidth,), alpha, wraps=[size == pod for size in shape])

    return build


def tpuv4(
    shape: tuple[int, ...],
    twisted: bool = False,
    bandwidth: Fraction = Fraction(50 * 10**9),
    alpha: float = ABSTRACT_ALPHA,
) -> Topology:
    """A slice of a TPU v4 pod: a mesh within a cube, else a torus of cubes; `twisted` needs a shape that allows it."""
    written = "x".join(map(str, shape))
    of_cubes = len(shape) == 3 and all(size >= 1 and size % _CUBE == 0 for size in shape)
    in_a_cube = len(shape) == 3 and all(size in (1, 2, _CUBE) for size in shape)
    require(
        of_cubes or in_a_cube,
        f"tpuv4: shape is {written}; it must be three multiples of {_CUBE} (whole cubes) such as 4x4x8, "
        f"or three of 1, 2 and {_CUBE} (a piece of a cube) such as 2x2x4",
    )
    chips = shape[0] * shape[1] * shape[2]
    require(
        chips <= _POD_CUBES * _CUBE**3,
        f"tpuv4: shape {written} has {chips} chips; a pod has {_POD_CUBES} cubes of {_CUBE**3}",
    )
    require(
        not twisted or (of_cubes and twistable(shape)),
        f"tpuv4: shape {written} cannot be twisted; that takes whole cubes in n, n, 2n or n, 2n, 2n such as 4x4x8",
    )
    if twisted:
        return twisted_torus(f"tpuv4:{written},twisted=on", shape, bandwidth, alpha)
    return grid("tpuv4", shape, (bandwidth,), alpha, wraps=[of_cubes] * 3)


_RATES = (
    Parameter("bandwidth", rate, "bytes/s per link and direction"),
    Parameter("alpha", seconds, "seconds per link"),
)

_NO_LATENCY = "latency: none published, that of abstract families"

TPUV2 = Family(
    name="tpuv2",
    build=_planar("tpuv2", 16, Fraction(62 * 10**9)),
    parameters=(Parameter("shape", shape, "chips along each dimension of the slice; the pod is 16x16"), *_RATES),
    summary="Google TPU v2: a slice of the 16x16 torus",
    source="Jouppi et al., A domain-specific supercomputer for training deep neural networks (CACM 2020): 496 Gbit/s "
    f"per link and direction; {_NO_LATENCY}",
    example="tpuv2",
)

TPUV3 = Family(
    name="tpuv3",
    build=_planar("tpuv3", 32, Fraction(82 * 10**9)),
    parameters=(Parameter("shape", shape, "chips along each dimension of the slice; the pod is 32x32"), *_RATES),
    summary="Google TPU v3: a slice of the 32x32 torus",
    source="Jouppi et al., A domain-specific supercomputer for training deep neural networks (CACM 2020): 656 Gbit/s "
    f"per link and direction; {_NO_LATENCY}",
    example="tpuv3:8x32",
)

TPUV4 = Family(
    name="tpuv4",
    build=tpuv4,
    parameters=(
        Parameter("shape", shape, "chips along each dimension of the slice"),
        Parameter("twisted", flag, "whether the optical switches close the slice with a twist"),
        *_RATES,
    ),
    summary="Google TPU v4: a slice made of 4x4x4 cubes joined by optical switches",
    source="Jouppi et al., TPU v4 (ISCA'23), section 2: cubes, slices, twists, six links of 50e9 bytes/s; slices below "
    f"a cube: Google Cloud TPU documentation; {_NO_LATENCY}",
    example="tpuv4:4x4x8,twisted=on",
)
