"""Aggregator: the abilities of a switch that reduces data, and profiles of the published ones.

    worker 0 ──chunk──▶ ┌───────── switch ─────────┐
    worker 1 ──chunk──▶ │ slot 0  slot 1 .. slot s │ ──sum──▶ every worker
    worker 2 ──chunk──▶ └──────────────────────────┘

A *slot* holds the partial sum of one packet until the contributions of all workers have arrived. A message of any size
streams through the slots: when a worker receives the result of a packet, it sends the next packet for that slot. So
there are two limits besides the links: a worker has at most `slots * slot_bytes` in flight and moves no more than that
per round trip (`pool_rate`), and the adder itself may be slower than its ports (`rate`).

Number formats that slots can add:

    float32, float16, bfloat16, float64, int32
    int32_block     fixed point with one exponent per block, scaled by the workers (Sapio et al., NSDI'21, section 3.7)
    float32_fpisa   float32 as sign-extended mantissa and exponent in integer registers; aligning exponents truncates
                    (Yuan et al., NSDI'22, section 3)

In the name of a topology, `star:4,aggregator=switchml` gives all switches a profile, `aggregator=sharp@spine*` only
those whose names match, and `aggregator=switchml,aggregator.slots=64` changes a number of the profile.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from syntony.base.standing import Standing, standing_of

NumberFormat = Literal["float32", "float16", "bfloat16", "float64", "int32", "int32_block", "float32_fpisa"]
NUMBER_FORMATS: tuple[NumberFormat, ...] = get_args(NumberFormat)

Sharing = Literal["partitioned", "shared"]
SHARINGS: tuple[Sharing, ...] = get_args(Sharing)

Placement = Literal["switch", "box"]
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)


@dataclass(frozen=True)
class Aggregator:
    """The part of a switch that adds.

    slots       partial sums that it holds at once; None: no limit
    slot_bytes  payload of a slot
    formats     number formats that it adds, the preferred one first
    rate        bytes/s of contributions that it takes in, all ports together; None: every port at its link's rate
    tenants     jobs that may use it at once
    sharing     `partitioned`: every tenant has its part of the slots; `shared`: first come, first served
    placement   `switch`: in the switch's own pipeline; `box`: in a machine beside it, reached over a link of `rate`
    multicast   whether it sends a result to all workers itself
    hot         share of a buffer that is aggregated here; the rest takes another way
    """

    name: str
    slots: int | None
    slot_bytes: int
    formats: tuple[NumberFormat, ...]
    rate: Fraction | None = None
    tenants: int = 1
    sharing: Sharing = "partitioned"
    placement: Placement = "switch"
    multicast: bool = True
    hot: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.fault:
            raise ValueError(self.fault)

    @property
    def fault(self) -> str:
        """What is wrong with the values, as a sentence; empty if nothing is."""
        unknown = [name for name in self.formats if name not in NUMBER_FORMATS]
        if not (self.name and self.name.isprintable()):
            return f"an aggregator has the name {self.name!r}; a name is printable and not empty"
        for what, value, right, holds in (
            ("slots", self.slots, "at least 1", self.slots is None or self.slots >= 1),
            ("slot_bytes", self.slot_bytes, "a multiple of 4, not 0", self.slot_bytes > 0 and self.slot_bytes % 4 == 0),
            ("rate", self.rate, "positive, in bytes/s", self.rate is None or self.rate > 0),
            ("tenants", self.tenants, "at least 1", self.tenants >= 1),
            ("hot", self.hot, "a share, more than 0 and at most 1", 0 < self.hot <= 1),
            ("sharing", self.sharing, f"one of {', '.join(SHARINGS)}", self.sharing in SHARINGS),
            ("placement", self.placement, f"one of {', '.join(PLACEMENTS)}", self.placement in PLACEMENTS),
            ("formats", ", ".join(self.formats), f"some of {', '.join(NUMBER_FORMATS)}", self.formats and not unknown),
        ):
            if not holds:
                return f"aggregator {self.name} has {what} {value}; it must be {right}"
        return ""

    def pool_bytes(self, jobs: int = 1) -> int | None:
        """Bytes that one of `jobs` equal jobs may have in flight per worker; None: no limit."""
        if self.slots is None:
            return None
        parts = self.tenants if self.sharing == "partitioned" else jobs
        return max(1, self.slots // parts) * self.slot_bytes

    def pool_rate(self, round_trip: Fraction, jobs: int = 1) -> Fraction | None:
        """Bytes/s per worker that the slots sustain if results arrive `round_trip` seconds after their packets."""
        pool = self.pool_bytes(jobs)
        return None if pool is None or not round_trip else pool / round_trip


@dataclass(frozen=True)
class Profile:
    """A published aggregator, and how much of its design the lab's process implements (lab/aggregator.py).

    source      where its numbers come from, and which of them are our assumptions
    missing     what of the design the process does not implement; "": nothing
    simulated   why it can only be simulated; "": it runs
    """

    aggregator: Aggregator
    summary: str
    source: str
    missing: str = ""
    simulated: str = ""

    @property
    def standing(self) -> Standing:
        return standing_of(self.missing, self.simulated)


_GBIT = Fraction(10**9, 8)
_CPU_FORMATS: tuple[NumberFormat, ...] = ("float32", "float64", "bfloat16", "float16", "int32")

_TABLE = (
    Profile(
        Aggregator("sharp", None, 256, ("float32", "float16", "bfloat16", "float64", "int32")),
        "InfiniBand switches that add streams in a tree",
        "Graham et al., COM-HPC'16 (256 B messages) and ISC'20 (streaming trees at line rate, locked by one job); "
        "bfloat16: NVIDIA Quantum-2 data sheet",
        missing="minimum, maximum and bitwise operations",
    ),
    Profile(
        Aggregator("nvls", None, 128, ("float32", "float16", "bfloat16", "float64", "int32"), tenants=64),
        "NVSwitch chips that add and multicast (NVLink SHARP)",
        "Klenk et al., ISCA'20 (the architecture); NVIDIA, Hot Chips 34 (NVSwitch 3); slot bytes and tenants: ours",
        simulated="it is in the chips: algorithm `nvls` of groups of GPUs uses real ones, no process stands for them",
    ),
    Profile(
        Aggregator("switchml", 512, 1024, ("int32_block", "int32")),
        "Tofino switch: a pool of slots, integers scaled by the workers",
        "Sapio et al., NSDI'21, sections 3 and 4 (512 slots at 100 Gb/s, 256 integers per packet with RDMA)",
    ),
    Profile(
        Aggregator("fpisa", 512, 256, ("float32_fpisa",)),
        "Tofino switch that adds floats as mantissa and exponent",
        "Yuan et al., NSDI'22 (arithmetic: section 3); slots as in SwitchML, over whose protocol it was measured",
    ),
    Profile(
        Aggregator("netreduce", 256, 1024, ("float32", "int32")),
        "FPGA beside an Ethernet switch, transparent to RDMA",
        "Liu et al., ASPLOS'23 (arXiv 2009.09736); number of slots: ours",
        missing="adding in passing: RoCE's own connections end at the hosts, with credits for whole messages",
    ),
    Profile(
        Aggregator("libra", 512, 128, ("float32",), hot=Fraction(1, 2)),
        "Tofino switch for the hot parameters of sparse models only",
        "Pan et al., arXiv 2205.05243 (floats by table look-up, hot parameters); share, slots and slot bytes: ours",
        missing="floats by table look-up; in the simulator a share of the buffer is hot (syntony.HotRows counts)",
    ),
    Profile(
        Aggregator("iswitch", None, 1456, ("float32",), rate=40 * _GBIT),
        "NetFPGA switch that adds packets on the fly",
        "Li et al., ISCA'19 (NetFPGA-SUME: four ports of 10 Gb/s); a packet's payload: ours",
        missing="asynchronous training, with sums of those who come first",
    ),
    Profile(
        Aggregator("atp", 20_000, 248, ("int32_block", "int32"), tenants=8, sharing="shared"),
        "Tofino switch shared by jobs, slot by slot",
        "Lao et al., NSDI'21 (62 integers per packet, slots given per packet); slots: its public code; tenants: ours",
    ),
    Profile(
        Aggregator("panama", 2048, 1024, ("float32", "bfloat16"), tenants=8),
        "FPGA switch shared fairly by congestion control, jobs spread over several trees",
        "Gebara et al., MLSys'21 (floats at the line rate of 10 Gb/s ports); slots, slot bytes and tenants: ours",
    ),
    Profile(
        Aggregator(
            "netagg", None, 64 * 1024, _CPU_FORMATS, rate=10 * _GBIT, tenants=16, sharing="shared", placement="box",
            multicast=False,
        ),
        "a server beside the switch",
        "Mai et al., CoNEXT'14 (boxes of 10 Gb/s); chunk bytes and tenants: ours",
        missing="functions of applications, other than sums",
    ),
    Profile(
        Aggregator("switchagg", 4096, 1024, ("int32", "float32"), rate=40 * _GBIT, placement="box", multicast=False),
        "a NetFPGA beside the switch",
        "Yang et al., arXiv 1904.04024 (NetFPGA-SUME, 10 Gb/s ports); slots and slot bytes: ours",
        missing="pairs of keys and values",
    ),
    Profile(
        Aggregator(
            "camdoop", None, 64 * 1024, _CPU_FORMATS, rate=6 * _GBIT, tenants=16, sharing="shared", placement="box",
            multicast=False,
        ),
        "servers of a 3D torus that add what they forward",
        "Costa et al., NSDI'12 (six ports of 1 Gb/s); chunk bytes and tenants: ours",
        missing="six disjoint trees in the torus, one for each port",
    ),
)  # fmt: skip

PROFILES: dict[str, Profile] = {profile.aggregator.name: profile for profile in _TABLE}
"""Published aggregators by name."""
