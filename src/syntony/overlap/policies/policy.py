"""A policy: passes over the step, an order and a gate, with knobs. The list of all is policies/table.py."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from syntony.base.command import UserError
from syntony.base.standing import Standing, standing_of
from syntony.base.wording import did_you_mean
from syntony.overlap.policies import orders
from syntony.overlap.policies.knob import Knob
from syntony.overlap.policies.passes.cut import GRADIENTS
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Clip
from syntony.overlap.step.op import Kind
from syntony.overlap.step.plan import Plan

LAST = dict.fromkeys(GRADIENTS, 1)  # priorities with which sums of gradients give way to everything else on their link


@dataclass(frozen=True)
class Decided:
    """The graph, how lanes choose while their order is found, the gate, and the kinds of movable computation."""

    graph: Graph
    rule: orders.Rule = orders.fifo
    windows: Mapping[str, int] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    movable: Collection[Kind] = ()

    def plan(self, name: str, knobs: Mapping[str, object], cost: Cost) -> Plan:
        movable = set(self.movable)
        updates = {op.key for op in self.graph if op.kind is Kind.OPTIMIZE and self.graph.before(op)}
        if any(op.kind.moves and updates.intersection(op.deps) for op in self.graph):
            movable |= {Kind.OPTIMIZE, Kind.NORM}  # updates before gathers come early, not just before use
        found = orders.listed(self.graph, cost, self.rule(self.graph, cost), self.priorities, movable, self.windows)
        found = orders.meeting(self.graph, found)
        clip = self.graph.layout.clip if self.graph.layout else Clip.OFF
        return Plan(name, self.graph, found, self.windows, knobs, clip, self.priorities)


Decide = Callable[..., Decided]


@dataclass(frozen=True)
class Policy:
    """A registry entry with its knobs set.

    paper        authors, system, venue
    missing      parts of the paper's method that it does not do; "": none
    without      parts left out permanently, because they change what is learned or are not about training; "": none
    simulated    why it can only be simulated; "": it runs
    """

    name: str
    paper: str
    about: str
    decide: Decide
    knobs: Mapping[str, Knob]
    values: Mapping[str, Any]
    missing: str = ""
    simulated: str = ""
    without: str = ""

    @property
    def standing(self) -> Standing:
        return standing_of(self.missing, self.simulated)

    def plan(self, graph: Graph, cost: Cost) -> Plan:
        """The plan of this step. Raises UserError if the policy does not apply to it (no pipeline, ..)."""
        return replace(
            self.decide(graph, cost, **self.values).plan(self.name, self.values, cost), simulated=self.simulated
        )

    def with_knobs(self, **values: Any) -> Policy:
        """The policy with other knobs; text is parsed as the default's type (sizes: 256K, 1M). Raises UserError."""
        found = dict(self.values)
        for name, value in values.items():
            if name not in self.knobs:
                guess, mine = did_you_mean(name, self.knobs), ", ".join(self.knobs) or "none"
                raise UserError(f"policy {self.name} has no knob {name!r}{guess}; it has {mine}")
            found[name] = self.knobs[name].read(value, f"policy {self.name}: {name}")
        return replace(self, values=found)


def published(
    paper: str, missing: str = "", simulated: str = "", without: str = "", **knobs: tuple[Any, tuple[Any, ...]]
) -> Callable[[Decide], Policy]:
    """Turns a deciding function into a policy: its name, its docstring as `about`; a knob is its default and the values
    that a search tries."""

    def described(decide: Decide) -> Policy:
        own = {name: Knob(*knob) for name, knob in knobs.items()}
        about = inspect.getdoc(decide) or ""
        name = decide.__name__
        values = {key: knob.default for key, knob in own.items()}
        return Policy(name, paper, about, decide, own, values, missing, simulated, without)

    return described


def best_of(cost: Cost, choices: Iterable[Decided]) -> Decided:
    """The choice whose plan is simulated fastest; the first of those within a millionth."""
    found = [(simulate(choice.plan("", {}, cost), cost).seconds, choice) for choice in choices]
    least = min(seconds for seconds, _ in found)
    return next(choice for seconds, choice in found if seconds <= least * (1 + 1e-6))
