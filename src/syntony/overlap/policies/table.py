"""The registry of policies, one per published system (systems/), in the order of listings.

An entry takes the Graph as generated (or recorded by our trainer), the Cost, and its knobs, and returns a Decided.
`search` tunes the knobs. If an entry does less than the paper, its row says what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from syntony.base.command import UserError
from syntony.base.wording import did_you_mean
from syntony.overlap.policies.policy import Policy
from syntony.overlap.policies.systems import computing, experts, partition, plain, priority, side_by_side

POLICIES: Mapping[str, Policy] = {
    one.name: one
    for one in (
        plain.fifo,
        plain.serial,
        plain.need,
        plain.poseidon,
        plain.gradientflow,
        plain.ddp,
        priority.p3,
        priority.tictac,
        priority.bytescheduler,
        priority.pace,
        priority.lina,
        computing.breadth_first,
        partition.collective_matmul,
        partition.syndicate,
        partition.centauri,
        partition.dear,
        partition.coconet,
        partition.t3,
        computing.ooo_backprop,
        computing.zero_bubble,
        side_by_side.oases,
        computing.lynx,
        experts.gshard,
        experts.tutel,
        experts.fastermoe,
        experts.pipemoe,
        experts.schemoe,
        experts.janus,
        experts.flowmoe,
        side_by_side.domino,
        side_by_side.interleave,
        side_by_side.dualpipe,
    )
}
LEFT_OUT: Mapping[str, str] = MappingProxyType(
    {
        "fold3d": "only the abstract of Li et al. (TPDS 2023) was available, and it describes breadth_first's plan",
        "trirace": "no description of it was found; its asynchronous updates would change the result",
    }
)
"""Systems named in surveys that have no row, with the reason."""


def policy(name: str, **knobs: Any) -> Policy:
    """A policy by name. Raises UserError for an unknown name, knob or value."""
    if name in LEFT_OUT:
        raise UserError(f"policy {name} is left out: {LEFT_OUT[name]}")
    if name not in POLICIES:
        raise UserError(f"unknown policy {name!r}{did_you_mean(name, POLICIES)}; known are {', '.join(POLICIES)}")
    return POLICIES[name].with_knobs(**knobs)
