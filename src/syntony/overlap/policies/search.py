"""Search: simulates the registry's policies with all knobs; the best few are worth a real step.

    defaults   every policy that can plan this step, those that take long last, until time is up: the result at least
               ties the best of those that were tried. Slices are enlarged where there would be too many
    chains     a change of the computation's order, followed by one of communication: `dualpipe+bytescheduler`
    dp         fusion by dynamic programming (passes/fuse.py) under every order
    grid       the best ones' knobs, exhaustively
    bayes      the same by a Gaussian process and expected improvement (Jones et al., 1998), as for ByteScheduler
    mcmc       random walks over orders that sometimes accept worse ones (Metropolis et al., 1953), as for SYNDICATE

For a large step, a smaller one is searched first: a period of blocks k times as heavy instead of k of them. The best
plans are then made and simulated in full; a returned plan always was. What was not among the best of the small step
is not tried on the large one, so that a policy may be faster there than the result.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product

from syntony.base.command import UserError
from syntony.base.wording import unknown
from syntony.overlap.policies import orders
from syntony.overlap.policies.bayes import Bayes, settings
from syntony.overlap.policies.passes.defer import defer
from syntony.overlap.policies.passes.fuse import fuse_best
from syntony.overlap.policies.policy import Decided, Policy
from syntony.overlap.policies.table import POLICIES
from syntony.overlap.policies.table import policy as policy_named
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import Graph, LayerSpec
from syntony.overlap.step.op import COMPUTE
from syntony.overlap.step.plan import Plan

METHODS = ("grid", "bayes", "mcmc", "dp")
LARGE = 4000
"""A smaller step is searched first above this number of Ops."""
_PARTS = 800  # most additional Ops from cutting gradients, to keep plans reasonably small
_FINALISTS = 4
_SIDE_BY_SIDE = ("dualpipe", "interleave")
"""Policies that run one microbatch's backward beside another's forward, even without a pipeline."""
_SLOW = (
    *("need", "pace", "collective_matmul", "syndicate", "centauri", "coconet", "t3", "ooo_backprop", "oases", "domino"),
    "interleave",
)
"""Policies that try several plans, or cut every layer: tried last."""


@dataclass(frozen=True)
class Candidate:
    """A plan, its predicted seconds, and its origin: in words, and the policies, if they alone made it."""

    plan: Plan
    seconds: float
    maker: str
    chain: tuple[Policy, ...] = ()


@dataclass(frozen=True)
class Found:
    """best first; `tried`: plans simulated; `refused`: policies that do not apply to this step, and why; `small`: the
    number of Ops of the smaller step that was searched first, 0 if there was none."""

    candidates: tuple[Candidate, ...]
    tried: int
    refused: Mapping[str, str]
    small: int


def search(
    graph: Graph,
    cost: Cost,
    seconds: float = 10.0,
    methods: tuple[str, ...] = METHODS,
    seed: int = 0,
    runnable: bool = True,
) -> Found:
    """Plans for the step. Raises UserError for an unknown method.

    seconds    of one core, after which it ends: nothing is started that takes longer than what is left
    runnable   leave out plans that can only be simulated
    """
    for method in methods:
        if method not in METHODS:
            raise UserError(unknown("method", method, METHODS))
    begin = time.process_time()
    small = smaller(graph) if len(graph) > LARGE else graph
    first = _Search(small, cost, begin + seconds * (0.6 if small is not graph else 1.0), random.Random(seed), runnable)
    first.run(methods)
    if small is graph:
        return Found(tuple(first.ranked()), first.tried, first.refused, 0)
    full = _Search(graph, cost, begin + seconds, random.Random(seed), runnable)
    best: dict[tuple[str, ...], tuple[Policy, ...]] = {}  # by the names in a chain, its best knobs
    for one in first.ranked():
        if one.chain:
            best.setdefault(tuple(policy.name for policy in one.chain), one.chain)
    finalists, growth = list(best.values())[:_FINALISTS], len(graph) / len(small)

    def expected(chain: tuple[Policy, ...]) -> float:
        return growth * first.spent[_maker(chain)]

    for chain in finalists:
        if time.process_time() + expected(chain) < begin + seconds:
            full.ask(*chain)
    if finalists and not full.found:
        full.ask(*min(finalists, key=expected))
    return Found(tuple(full.ranked()), first.tried + full.tried, first.refused, len(small))


class _Search:
    def __init__(self, graph: Graph, cost: Cost, deadline: float, luck: random.Random, runnable: bool) -> None:
        self._graph, self._cost, self._deadline, self._luck, self._runnable = graph, cost, deadline, luck, runnable
        self.found: dict[str, Candidate] = {}
        self.refused: dict[str, str] = {}
        self.spent: dict[str, float] = {}  # seconds of a core, by maker
        self.tried = 0
        self._moved = sum(op.amount for op in graph if op.pieces)

    def late(self) -> bool:
        return time.process_time() > self._deadline

    def ranked(self) -> list[Candidate]:
        return sorted(self.found.values(), key=lambda one: one.seconds)

    def run(self, methods: tuple[str, ...]) -> None:
        for late in (False, True):
            for policy in POLICIES.values():
                if (policy.name in _SLOW) == late and not (self.found and self.late()):
                    self.ask(policy)
            self._chained()
        if "dp" in methods:
            self._fused()
        left = [method for method in ("grid", "bayes", "mcmc") if method in methods]
        for number, method in enumerate(left):
            until = time.process_time() + (self._deadline - time.process_time()) / (len(left) - number)
            {"grid": self._grid, "bayes": self._bayes, "mcmc": self._walk}[method](until)

    def ask(self, *chain: Policy) -> float:
        """Seconds of the plan that these policies make one after another; infinite if there is none."""
        fitted = tuple(map(self._fitted, chain))
        maker, begin = _maker(fitted), time.process_time()
        if maker in self.found:
            return self.found[maker].seconds
        try:
            return self._keep(planned(fitted, self._graph, self._cost), maker, fitted)
        except UserError as error:
            self.refused[maker] = str(error)
            return math.inf
        finally:
            self.spent[maker] = time.process_time() - begin

    def _keep(self, plan: Plan, maker: str, chain: tuple[Policy, ...] = ()) -> float:
        if plan.simulated and self._runnable:
            self.refused[maker] = plan.simulated
            return math.inf
        seconds = simulate(plan, self._cost).seconds
        self.tried += 1
        self.found[maker] = Candidate(plan, seconds, maker, chain)
        return seconds

    def _fitted(self, policy: Policy) -> Policy:
        """Limits slices to sizes that keep the plan reasonably short."""
        least = self._moved / _PARTS
        if policy.values.get("slice", least) >= least:
            return policy
        return policy.with_knobs(slice=1 << math.ceil(math.log2(least)))

    def _chained(self) -> None:
        """The best policies for the computation's order, each followed by the best of the others."""
        layout = self._graph.layout
        alone = [one for one in self.ranked() if len(one.chain) == 1]
        pipes = [one for one in alone if one.plan.graph.layout != layout or one.plan.policy in _SIDE_BY_SIDE]
        others = [one for one in alone if one not in pipes and one.plan.policy != "serial"]
        for first, then in product(pipes[:2], others[:4]):
            if not self.late():
                self.ask(first.chain[0], then.chain[0])

    def _fused(self) -> None:
        for rule in (orders.fifo, orders.need, orders.critical):
            told = {"method": "dp", "order": rule.__name__}

            def plan(fused: Graph, rule: orders.Rule = rule, told: Mapping[str, object] = told) -> Plan:
                return Decided(defer(fused), rule).plan("search", told, self._cost)

            def seconds(fused: Graph, plan: Callable[[Graph], Plan] = plan) -> float:
                return simulate(plan(fused), self._cost).seconds

            if not self.late():
                try:
                    found = plan(fuse_best(self._graph, self._cost, seconds))
                except UserError as error:
                    self.refused["dp"] = str(error)
                    return
                self._keep(found, f"dp, order {rule.__name__}")

    def _tunable(self) -> list[tuple[Policy, ...]]:
        """The best policies, and chains, whose last one has knobs; best first."""
        found: dict[tuple[str, ...], tuple[Policy, ...]] = {}
        for one in self.ranked():
            if one.chain and any(len(knob.grid) > 1 for knob in one.chain[-1].knobs.values()):
                found.setdefault(tuple(policy.name for policy in one.chain), one.chain)
        return list(found.values())

    def _grid(self, until: float) -> None:
        for *before, policy in self._tunable():
            for values in settings(policy):
                if time.process_time() > until:
                    return
                self.ask(*before, policy.with_knobs(**values))

    def _bayes(self, until: float) -> None:
        for *before, policy in self._tunable()[:3]:
            bayes = Bayes(policy, self._luck)
            while time.process_time() < until and (one := bayes.pick()) is not None:
                bayes.tell(self.ask(*before, one))

    def _walk(self, until: float) -> None:
        """A random walk from the best plan: an Op moves by a few places in the order of its lane."""
        if not self.found:
            return
        here = best = self.ranked()[0]
        steps = 0
        while time.process_time() < until:
            steps += 1
            heat = 1e-3 * best.seconds * 0.98**steps
            try:
                plan = self._swapped(here.plan)
                if plan is None:
                    return
                seconds = simulate(plan, self._cost).seconds
            except UserError:
                continue  # in this order, lanes wait for each other
            self.tried += 1
            if seconds <= here.seconds or self._luck.random() < math.exp((here.seconds - seconds) / max(heat, 1e-12)):
                here = Candidate(plan, seconds, f"mcmc from {best.maker.removeprefix('mcmc from ')}")
            if here.seconds < best.seconds * (1 - 1e-6):
                best = here
        if best.maker not in self.found:
            knobs = {"method": best.maker}
            self.found[best.maker] = replace(best, plan=replace(best.plan, policy="search", knobs=knobs))

    def _swapped(self, plan: Plan) -> Plan | None:
        lanes = [lane for lane, keys in plan.orders.items() if lane[1] != COMPUTE and len(keys) > 1]
        if not lanes:
            return None
        lane = self._luck.choice(lanes)
        keys = list(plan.orders[lane])
        at = self._luck.randrange(len(keys) - 1)
        keys.insert(self._luck.randrange(max(0, at - 8), min(len(keys), at + 9)), keys.pop(at))
        return replace(plan, orders=orders.meeting(plan.graph, {**plan.orders, lane: tuple(keys)}))


def planned(chain: tuple[Policy, ...], graph: Graph, cost: Cost) -> Plan:
    """The plan of the last policy for the step that results from those before it. Raises UserError as they do."""
    for policy in chain[:-1]:
        graph = policy.decide(graph, cost, **policy.values).graph
    plan = chain[-1].plan(graph, cost)
    if len(chain) == 1:
        return plan
    knobs = {policy.name: dict(policy.values) for policy in chain}
    only = next((policy.simulated for policy in chain if policy.simulated), "")
    return replace(plan, policy="+".join(policy.name for policy in chain), knobs=knobs, simulated=only)


def chain_of(text: str) -> tuple[Policy, ...]:
    """`ddp`, `bytescheduler:slice=1M,credit=4M`, or some of those joined by +. Raises UserError."""
    named = [knobs_of(part) for part in text.split("+")]
    return tuple(policy_named(name, **knobs) for name, knobs in named)


def knobs_of(text: str) -> tuple[str, Mapping[str, str]]:
    """The name and the knobs of `name:knob=value,knob=value`. Raises UserError."""
    name, _, knobs = text.partition(":")
    values = [knob.partition("=") for knob in knobs.split(",") if knob]
    for key, equals, _ in values:
        if not equals:
            raise UserError(f"policy {text}: {key!r} is not of the form knob=value")
    return name, {key: value for key, _, value in values}


def describe(policy: Policy) -> str:
    """A policy with its knobs, in the syntax of --policy."""
    knobs = ",".join(f"{name}={value}" for name, value in policy.values.items())
    return f"{policy.name}:{knobs}" if knobs else policy.name


def _maker(chain: tuple[Policy, ...]) -> str:
    return "+".join(map(describe, chain))


def smaller(graph: Graph) -> Graph:
    """The same step with fewer, heavier layers; unchanged if its layers do not repeat."""
    layers, layout = graph.layers, graph.layout
    if layout is None or len(layers) < 8:
        return graph
    body = layers[1:-1]
    shape = [replace(layer, name="") for layer in body]
    period = next((p for p in (1, 2, 4, 8) if len(body) % p == 0 and shape[p:] == shape[:-p]), 0)
    if not period:
        return graph
    blocks = len(body) // period
    least = max(1, 2 * layout.pp * layout.loops)
    fewer = next((n for n in range(least, blocks) if blocks % n == 0), blocks)
    if fewer == blocks:
        return graph
    kept = tuple(_heavier(layer, blocks // fewer) for layer in body[: fewer * period])
    return generate((layers[0], *kept, layers[-1]), layout)


def _heavier(layer: LayerSpec, times: int) -> LayerSpec:
    return replace(
        layer,
        weights=layer.weights * times,
        segments=tuple(amount * times for amount in layer.segments),
        transfers=tuple(replace(transfer, bytes=transfer.bytes * times) for transfer in layer.transfers),
        activations=layer.activations * times,
        shares=tuple(share * times for share in layer.shares),
        taken=tuple(share * times for share in layer.taken),
        added=tuple(share * times for share in layer.added),
        products=layer.products * times,
        inputs=layer.inputs * times,
        shared=layer.shared * times,
        shadow=layer.shadow and _heavier(layer.shadow, times),
        moved=tuple(_heavier(other, times) for other in layer.moved),
    )
