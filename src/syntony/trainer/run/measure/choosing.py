"""Chooses the plan of a run: the policies' or, for `search`, the best of its candidates in real steps.

search, simulated -> the best few -> [steps of A] [steps of B] .. on these ranks -> whose slowest rank was fastest
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from syntony.base.command import UserError
from syntony.overlap.policies.policy import Policy
from syntony.overlap.policies.search import chain_of, knobs_of, planned, search
from syntony.overlap.policies.table import policy as policy_named
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.plan import Plan
from syntony.trainer.run.rank import Rank
from syntony.trainer.run.text import Microbatches

_STEPS = 3  # of each candidate plan
_SIZES = ("dp", "tp", "pp", "ep", "cp", "microbatches")


@dataclass(frozen=True)
class Search:
    """seconds: of one core for simulation; tried: number of plans that get real steps."""

    seconds: float = 10.0
    tried: int = 4


def wanted(text: str, knobs: Mapping[str, Any] | None = None) -> tuple[Policy, ...] | Search:
    """`search` (`search:seconds=20,tried=5`), or policies in the syntax of --policy. Raises UserError.

    knobs    of the only policy, if `text` names none
    """
    name, said = knobs_of(text) if text.partition(":")[0] == "search" else (text, {})
    if name != "search":
        return (policy_named(text, **knobs),) if knobs else chain_of(text)
    values: dict[str, Any] = {**said, **(knobs or {})}
    try:
        seconds, tried = float(values.pop("seconds", Search.seconds)), int(values.pop("tried", Search.tried))
    except ValueError as error:
        raise UserError(f"policy {text}: seconds and tried are numbers ({error})") from error
    if values or seconds <= 0 or tried < 1:
        raise UserError(f"policy {text}: search has the knobs seconds, of a core, and tried, a number of plans")
    return Search(seconds, tried)


def given(path: str, rank: Rank) -> Plan:
    """Reads an existing plan. Raises UserError if it is for another step than this run's."""
    plan, step = Plan.read(path), rank.recorded()
    asked, has = _form(step), _form(plan.graph)
    if has != asked:
        raise UserError(f"[overlap] plan: {path} is of a step with {has or 'no layout'}; this run's has {asked}")
    for layer, (_, flat) in zip(plan.graph.layers, rank.parts_of(plan).values(), strict=False):
        if layer.weights != 4 * flat.elements:
            raise UserError(
                f"[overlap] plan: {path} has a layer {layer.name!r} with {layer.weights:g} bytes of weights; in this "
                f"run's model it has {4 * flat.elements}"
            )
    return plan


def _form(step: Graph) -> str:
    """The part of a step that no policy changes."""
    sizes = step.layout and [f"{name} {getattr(step.layout, name)}" for name in _SIZES]
    return ", ".join([*sizes, f"layers {len(step.layers)}"]) if sizes else ""


def chosen(
    want: tuple[Policy, ...] | Search, rank: Rank, cost: Cost, batch: Callable[[int], Microbatches], rate: float
) -> Plan:
    """The plan, the same on all ranks. Weights of trial steps are discarded. Collective.

    rate    the learning rate of these steps
    Raises UserError on all ranks alike.
    """
    made: list[str] = []
    refused = ""
    if rank.mesh.rank == 0:
        try:
            made = [plan.text for plan in _plans(want, rank, cost)]
        except UserError as error:
            refused = str(error)
    made, refused = json.loads(rank.world.tell(json.dumps([made, refused])))
    if refused:
        raise UserError(refused)
    plans = [Plan.from_text(text) for text in made]
    if len(plans) == 1:
        return plans[0]
    mine = [median(rank.measure(plan, _STEPS, batch, rate).seconds) for plan in plans]
    everybody = [json.loads(blob) for blob in rank.world.gather(json.dumps(mine).encode())]
    slowest = [max(of_ranks) for of_ranks in zip(*everybody, strict=True)]
    return plans[slowest.index(min(slowest))]


def _plans(want: tuple[Policy, ...] | Search, rank: Rank, cost: Cost) -> list[Plan]:
    if isinstance(want, Search):
        best: dict[str, Plan] = {}  # by mechanism, since prediction errors are similar within one
        for candidate in search(rank.recorded(), cost, want.seconds).candidates:
            best.setdefault(candidate.plan.policy.partition("+")[0], candidate.plan)
        return list(best.values())[: want.tried]
    plan = planned(want, rank.recorded(), cost)
    if plan.simulated:
        raise UserError(f"policy {plan.policy} is simulated only: {plan.simulated}")
    return [plan]
