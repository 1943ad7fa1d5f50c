"""The layout of a model on the machine: the sizes of its kinds of parallelism, and the composition of a step.

    ranks = pp x (dp x cp x tp)        all ranks of a pipeline stage do the same, so a stage is one device of a Graph

If tp is a grid, `row` and `column` are its ranks in a row and in a column; `tp` is all of them. If attention is usp,
the group `heads` trades heads and `cp` is a ring, heads x cp ranks together. With double rings, `cp` is the inner one,
and `outer` the ranks at the same position in these.

With secondary shards, `near` are neighbours in `dp` that gather weights for the backward among themselves.

The group `dp` sums gradients, over dp x cp ranks; with `replicas`, weights are sharded over dp x cp / replicas of them,
and `replicas` sums the shards of the replicas; `data` is all of them, for layers that a policy sums at once. Where
pipelines run in both directions (Chimera), a layer is on two devices, which both are in its group `dp`. Experts are
spread over `ep` of those ranks; their copies meet in `edp`. With `relay`, `ep_near` are the ranks of a box, and
`ep_far` those at one place of their boxes.

With `islands` whose weights differ for a while (`apart`), all of these groups are within an island, and `islands` are
the ranks at one place of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import isqrt
from typing import Literal, get_args

from syntony.base.command import UserError
from syntony.base.wording import did_you_mean
from syntony.overlap.step.pipelines.pipelines import PIPELINES

Attention = Literal["ring", "striped", "plain", "ulysses", "usp"]
Outer = Literal["average", "nesterov"]

_SIZES = ("dp", "tp", "pp", "ep", "cp")
_COUNTS = (
    "replicas", "microbatches", "loops", "prefetch", "slices", "traders", "inner", "secondary", "relay", "islands",
    "local",
)  # fmt: skip


class Clip(StrEnum):
    """How gradients are clipped by their norm.

    EXACT       no weight changes before the norm of all gradients is known
    OPTIMISTIC  weights change at once; if the norm turns out too large, the step is undone and repeated
    OFF         gradients are not clipped
    """

    EXACT = "exact"
    OPTIMISTIC = "optimistic"
    OFF = "off"


@dataclass(frozen=True)
class Parallel:
    """Sizes of the kinds of parallelism, and their forms: the section [parallel] of a configuration.

    dp, tp, pp, ep, cp   ranks of data, tensor, pipeline, expert and context parallelism; ep is part of dp x cp
    zero                 what is sharded over `dp`: 0 nothing, 1 optimizer, 2 gradients too, 3 weights too
    islands              groups of data ranks with slow links between them; they divide dp
    local                steps that an island trains alone before islands exchange what these have changed (DiLoCo)
    delay                how many such exchanges may be under way while training goes on: what other islands have
                         learned is used so many exchanges later (the D of HetPipe's WSP). 0: training waits for it
    outer                how the exchanged changes are used: by their `average`, or with momentum (`nesterov`)
    replicas             of the sharded model (hybrid sharding); they divide dp x cp
    spread               each replica updates a part of a shard, so the optimizer's state is divided by all of dp x cp,
                         while weights and gradients move among the ranks of one replica
    secondary            with zero=3: this many neighbours each keep a part of what is gathered for the forward, and
                         gather weights for the backward from these (ZeRO++'s hpZ); 1: from all ranks' shards again
    sequence             with tp: between the branches, activations are sharded along the sequence
    grid                 instead: tp is a square of ranks, each with a block of every matrix and activation
    rotate               instead: each rank of tp has its own sequences and a shard of every matrix, and the shards go
                         round the ranks, with their gradients (Luo et al., RTP, arXiv 2311.01635)
    dedup                with tp and ep: tokens are sent to experts once, each rank of tp sends a part of their width;
                         without, each sends the whole (duplicate token dropping of Singh et al., TED, ICS 2023)
    relay                so many neighbours of ep are a box: a token is sent once to each box with experts for it, and
                         passed on inside (DeepEP); 1: it is sent to each expert
    attention            how cp attends: in a `ring`, of pieces from both ends of the sequence, `striped` or `plain`; by
                         `ulysses`; by `usp`, where `traders` neighbours trade heads and the others are in rings
    inner                of a ring, so many neighbours are a ring of their own, in which keys and values go round before
                         they go on to the next such ring (double rings); 1: all are one ring
    schedule, loops      the pipeline's order (a row of PIPELINES), and how many chunks a device has, or waves
    slices               of each sequence, which go through the pipeline one after the other
    speeds               of the pipeline's devices, relative, by which layers are assigned; empty: all equal
    recompute            activations are recomputed instead of kept
    prefetch             with zero=3: the number of layers ahead for which weights are gathered
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    cp: int = 1
    zero: int = 0
    islands: int = 1
    local: int = 1
    delay: int = 0
    outer: Outer = "average"
    replicas: int = 1
    spread: bool = False
    secondary: int = 1
    sequence: bool = True
    grid: bool = False
    rotate: bool = False
    dedup: bool = False
    relay: int = 1
    attention: Attention = "ring"
    traders: int = 1
    inner: int = 1
    schedule: str = "1f1b"
    loops: int = 1
    slices: int = 1
    speeds: tuple[float, ...] = ()
    recompute: bool = False
    prefetch: int = 1

    @property
    def ranks(self) -> int:
        return self.dp * self.cp * self.tp * self.pp

    @property
    def sizes(self) -> Mapping[str, int]:
        """The number of ranks in each lane's group."""
        islands = self.islands if self.apart else 1
        data = self.dp * self.cp // islands
        return {
            "islands": islands,
            "dp": data // self.replicas * self.copies,
            "replicas": self.replicas,
            "data": data if self.replicas > 1 else 1,
            "near": self.secondary,
            "edp": data // self.ep,
            "tp": self.tp,
            "row": self.side,
            "column": self.side,
            "ep": self.ep,
            "ep_far": self.ep // self.relay if self.relay > 1 else 1,
            "ep_near": self.relay,
            "cp": self.cp if self.attention == "ulysses" else self.ring,
            "outer": self.rings // self.ring,
            "heads": self.traders if self.attention == "usp" else 1,
            "pp": self.pp,
        }

    @property
    def apart(self) -> bool:
        """Whether weights differ between islands for a while, so that results differ from synchronous training."""
        return self.islands > 1 and (self.local > 1 or self.delay > 0 or self.outer != "average")

    @property
    def differs(self) -> str:
        """How the training differs from synchronous training, as a sentence; "": it does not."""
        if not self.apart:
            return ""
        steps = "step" if self.local == 1 else f"{self.local} steps"
        late = f" and use what they get {self.delay} exchange{'s' * (self.delay > 1)} later" if self.delay else ""
        outer = ", with momentum" if self.outer == "nesterov" else ""
        return (
            f"not synchronous: {self.islands} islands exchange their changes every {steps}{outer}{late}, and have "
            "different weights meanwhile"
        )

    @property
    def side(self) -> int:
        """The side of tp's grid; 1: no grid."""
        return isqrt(self.tp) if self.grid else 1

    @property
    def batch_parts(self) -> int:
        """The number of parts of a microbatch's sequences that ranks of tp have."""
        return self.tp if self.rotate else self.side

    @property
    def cuts_sequences(self) -> bool:
        """Whether ranks of tp have parts of sequences between branches."""
        return self.sequence and self.tp > 1 and self.batch_parts == 1

    @property
    def trading(self) -> int:
        """The number of cp's ranks that trade their tokens for heads."""
        return {"ulysses": self.cp, "usp": self.traders}.get(self.attention, 1)

    @property
    def rings(self) -> int:
        """The number of ranks in a ring of keys and values."""
        return self.cp // self.trading

    @property
    def ring(self) -> int:
        """The number of these in an inner ring; all of them if there is only one."""
        return self.inner if self.inner > 1 else self.rings

    @property
    def halves(self) -> int:
        """The number of pieces of a sequence on a rank of a ring."""
        return 2 if self.attention in ("ring", "usp") and self.rings > 1 else 1

    @property
    def copies(self) -> int:
        """Copies of each layer within a pipeline."""
        row = PIPELINES.get(self.schedule)
        return 2 if row is not None and row.twins else 1

    @property
    def groups(self) -> Mapping[str, int]:
        """Ranks of each group that has more than one, by lane."""
        return {lane: size for lane, size in self.sizes.items() if size > 1 and (lane != "edp" or self.ep > 1)}


@dataclass(frozen=True)
class Layout(Parallel):
    """The layout of a step. Raises UserError if its sizes do not fit together.

    microbatches    per data-parallel rank and step
    clip            of gradients
    """

    microbatches: int = 1
    clip: Clip = Clip.OFF

    def __post_init__(self) -> None:
        for name in (*_SIZES, *_COUNTS):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be 1 or more")
        if self.attention not in get_args(Attention):
            raise UserError(f"attention is {self.attention!r}; it must be {' or '.join(get_args(Attention))}")
        if self.traders > 1 and (self.attention != "usp" or self.cp % self.traders):
            raise UserError(
                f"traders is {self.traders}; it needs attention usp, and must divide cp, which is {self.cp}"
            )
        if self.rings % self.inner:
            raise UserError(f"inner is {self.inner}; it must divide the ranks of a ring, and these are {self.rings}")
        if self.zero not in (0, 1, 2, 3):
            raise UserError(
                f"zero is {self.zero}; it must be 0 (nothing sharded), 1 (optimizer), 2 (gradients) or 3 (weights)"
            )
        if self.dp % self.islands:
            raise UserError(f"islands is {self.islands}; it must divide dp, which is {self.dp}")
        if self.delay < 0 or self.outer not in get_args(Outer):
            raise UserError(
                f"delay is {self.delay} and outer {self.outer!r}; delay must be 0 or more, and outer "
                f"{' or '.join(get_args(Outer))}"
            )
        if self.islands == 1 and (self.local > 1 or self.delay or self.outer != "average"):
            raise UserError("local, delay and outer are about several islands; islands must be 2 or more")
        if self.apart:
            self._check_islands()
        if self.dp * self.cp % self.ep:
            raise UserError(f"ep is {self.ep}; it must divide dp x cp, which is {self.dp * self.cp}")
        if self.dp * self.cp % self.replicas:
            raise UserError(f"replicas is {self.replicas}; it must divide dp x cp, which is {self.dp * self.cp}")
        if self.replicas > 1 and self.zero == 0:
            raise UserError(f"replicas is {self.replicas}, but zero is 0: unsharded weights are replicas as they are")
        if self.spread and self.replicas == 1:
            raise UserError("spread divides a shard's update among replicas, but replicas is 1")
        if self.secondary > 1 and (self.zero < 3 or self.replicas > 1 or self.dp * self.cp % self.secondary):
            raise UserError(
                f"secondary is {self.secondary}; it needs zero 3 and one replica, and must divide dp x cp; these are "
                f"{self.zero}, {self.replicas}, {self.dp * self.cp}"
            )
        if self.schedule not in PIPELINES:
            guess = did_you_mean(self.schedule, PIPELINES)
            raise UserError(f"unknown schedule {self.schedule!r}{guess}; known are {', '.join(PIPELINES)}")
        if self.speeds and (len(self.speeds) != self.pp or min(self.speeds) <= 0 or self.copies > 1):
            said = ", ".join(f"{speed:g}" for speed in self.speeds)
            raise UserError(
                f"speeds are {said}; there must be one above 0 for each of pp devices, which are {self.pp}, with one "
                "copy of every layer"
            )
        if self.copies > 1 and (self.ep > 1 or self.replicas > 1):
            raise UserError(f"schedule {self.schedule} has two copies of every layer; ep and replicas must be 1")
        if self.copies > 1 and self.zero == 3:
            raise UserError(
                f"schedule {self.schedule} has two copies of every layer, which use it at different times; "
                "zero must be 2 or less"
            )
        if self.grid and (self.side**2 != self.tp or self.cp > 1 or self.ep > 1):
            raise UserError(
                f"grid needs tp to be the square of a number, and cp and ep to be 1; they are {self.tp}, {self.cp}, "
                f"{self.ep}"
            )
        if self.rotate and (self.tp == 1 or self.grid or self.cp > 1 or self.ep > 1 or self.zero == 3):
            raise UserError(
                "rotate passes shards of weights round the ranks of tp: tp must be 2 or more, cp and ep 1, zero 2 or "
                f"less and grid off; they are {self.tp}, {self.cp}, {self.ep}, {self.zero} and "
                + ("on" if self.grid else "off")
            )
        if self.dedup and (self.tp == 1 or self.ep == 1):
            raise UserError(
                f"dedup is about the copies that ranks of tp send to experts: tp and ep must be 2 or more, and are "
                f"{self.tp} and {self.ep}"
            )
        if self.relay > 1 and (self.ep % self.relay or self.ep == self.relay):
            raise UserError(
                f"relay is {self.relay}; boxes of so many ranks must divide ep, which is {self.ep}, in two or more"
            )
        if self.slices > 1 and (self.cp > 1 or self.ep > 1):
            raise UserError(
                f"slices is {self.slices}: sequences that are cut in time cannot be cut by cp, or sent to ep"
            )

    def _check_islands(self) -> None:
        inside = self.dp * self.cp // self.islands
        for name in ("ep", "replicas", "secondary"):
            if inside % getattr(self, name):
                raise UserError(
                    f"{name} is {getattr(self, name)}; it must divide the {inside} data ranks of an island (dp x cp / "
                    "islands)"
                )
        if self.spread or self.copies > 1:
            raise UserError("islands exchange whole updates of a layer: spread must be off, and schedule not chimera")
        if self.clip is Clip.OPTIMISTIC:
            raise UserError("clip is optimistic, but exchanges of islands cannot be undone; it must be exact or off")

    @property
    def chunks(self) -> int:
        """Chunks of the model per device: a V has two."""
        return PIPELINES[self.schedule].chunks(self.loops)

    @property
    def units(self) -> int:
        """The units in the pipeline: microbatches, or slices of them."""
        return self.microbatches * self.slices
