"""The checker of Schedules: reads the columns, shares no code with engines.

What is proven, in this order (the first fault is the verdict; it names rank or switch, step and chunk):

    values     operands are earlier values of the same chunk; no contribution is summed twice; contributions start
               where the collective says
    switches   one that is an agent can do what it is asked: it reduces where it adds, in a number format that it has,
               and every operand arrives; it multicasts where it copies
    routes     the links exist and lead from source to destination, through other switches and NICs only
    causality  by steps: a source holds the value through transfers of smaller steps. Data-driven execution follows:
               what a transfer waits for stands at smaller steps, so the waits have no circle
    necessity  nobody receives what it holds; every transfer serves some demanded chunk. Hence no transfer can be left
               out: its receiver would lack the value, and somebody needs it there
    outcome    every demanded rank ends with all contributions, added in the same order on all ranks
    slots      no switch holds more sums at once, steps taken one by one, than it has slots
    capacity   where rounds are claimed: in each step, no link carries more than it can in that many rounds
    claims     the bounds, recomputed from their witnesses (checker/claims.py)

A symmetric schedule is proven by the chunks that stand for all others, where that proves it (checker/orbits.py); else
it is expanded first.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from synth.checker.claims import check_bounds
from synth.checker.contract import Contract
from synth.checker.orbits import Orbits, orbits_of
from synth.checker.verdict import FaultError, Verdict, listed
from synth.schedule import Schedule, Transfer

Held = tuple[int, int]
"""(agent, value)."""


def check_schedule(schedule: Schedule) -> Verdict:
    """Proves the Schedule; the Verdict names the first fault."""
    try:
        proof = _Proof(schedule)
        proof.check_values()
        proof.check_transfers()
        if schedule.symmetry:
            proof.orbits = orbits_of(schedule)
            if proof.orbits is None:
                _check_listed_once(schedule)
                proof = _Proof(schedule.expand())
                proof.check_values()
                proof.check_transfers()
        proof.check_switches()
        proof.check_routes()
        proof.play()
        proof.check_outcome()
        proof.check_slots()
        proof.check_capacity()
        check_bounds(schedule)
    except FaultError as fault:
        return fault.verdict
    return Verdict(valid=True)


def _check_listed_once(schedule: Schedule) -> None:
    """Expansion makes a set of the listed transfers, so what is listed twice would go unnoticed."""
    seen: set[Transfer] = set()
    for t, row in enumerate(schedule.transfers.rows()):
        if row in seen:
            raise _Proof(schedule).at(t, "needless: the same transfer is listed twice", row.dst)
        seen.add(row)


class _Proof:
    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        collective = schedule.collective
        self.contract = Contract(collective.kind, collective.ranks, collective.root)
        self.ranks = collective.ranks
        self.able = [node for node in schedule.topology.nodes if node.multicast or node.reduces]
        self.block = collective.chunks.block.tolist()
        self.chunk = schedule.values.chunk.tolist()
        moved = schedule.transfers
        self.transfers = list(
            zip(moved.value.tolist(), moved.result.tolist(), moved.src.tolist(), moved.dst.tolist(), strict=True)
        )
        self.step = moved.step.tolist()
        self.steps = max(self.step, default=-1) + 1
        self.operands: list[tuple[int, ...]] = []
        self.contributors: list[int] = []  # bit sets of ranks
        self.tree: list[int] = []  # equal numbers: equal sums, bit for bit
        self.held: dict[Held, list[int]] = {}  # -> the transfers that brought it; empty where it was from the start
        self.orbits: Orbits | None = None
        self.spent: dict[Held, list[int]] = {}  # a sum -> the operands that it took from its own rank

    # --- faults -------------------------------------------------------------------------------------------------

    def at(self, transfer: int, message: str, rank: int | None = None) -> FaultError:
        """A fault of a transfer."""
        value, _, src, dst = self.transfers[transfer]
        chunk = self.chunk[value]
        ends = f"{self.name(src)} -> {self.name(dst)}"
        fault = f"step {self.step[transfer]}, transfer {transfer} (chunk {chunk}, {ends}): {message}"
        return FaultError(
            Verdict(
                valid=False,
                fault=fault,
                agent=src if rank is None else rank,
                step=self.step[transfer],
                transfer=transfer,
                chunk=chunk,
            )
        )

    def name(self, agent: int) -> str:
        """How an agent is called in messages."""
        return f"rank {agent}" if agent < self.ranks else f"switch {self.able[agent - self.ranks].name}"

    def told(self, value: int) -> str:
        """How a value is called in messages."""
        name = f"chunk {self.chunk[value]}"
        if not self.contract.sums:
            return name
        return f"{name} summed over ranks {listed(_ranks(self.contributors[value]))}"

    # --- the checks ---------------------------------------------------------------------------------------------

    def check_values(self) -> None:
        """The value table: contributions and sums."""
        values = self.schedule.values
        offset, operand = values.offset.tolist(), values.operand.tolist()
        if not len(values.rank) == len(self.chunk) == len(offset) - 1 or offset[-1] != len(operand) or offset[0] != 0:
            raise FaultError(Verdict(False, "the columns of the value table do not fit together"))
        numbers: dict[tuple[int, ...], int] = {}
        for value, rank in enumerate(values.rank.tolist()):
            chunk = self.chunk[value]
            terms = tuple(operand[offset[value] : offset[value + 1]])

            def refuse(message: str, value: int = value, chunk: int = chunk) -> FaultError:
                return FaultError(Verdict(False, f"value {value} (chunk {chunk}): {message}", chunk=chunk))

            if not 0 <= chunk < len(self.block):
                raise refuse(f"the collective has chunks 0..{len(self.block) - 1}")
            if rank >= 0:
                if terms:
                    raise refuse("a contribution has no operands")
                if rank >= self.ranks or rank not in self.contract.sources(self.block[chunk]):
                    raise refuse(f"rank {rank} does not start with this chunk")
                key: tuple[int, ...] = (-1, chunk, rank)
                self.contributors.append(1 << rank)
            else:
                key = self._check_sum(value, terms, refuse)
            self.operands.append(terms)
            self.tree.append(numbers.setdefault(key, len(numbers)))

    def _check_sum(self, value: int, terms: tuple[int, ...], refuse: object) -> tuple[int, ...]:
        assert callable(refuse)
        if not self.contract.sums:
            raise refuse(f"{self.contract.kind} sums nothing")
        if len(terms) < 2:
            raise refuse("a sum has at least two operands")
        whole = 0
        for term in terms:
            if not 0 <= term < value or self.chunk[term] != self.chunk[value]:
                raise refuse(f"operand {term} is not an earlier value of the same chunk")
            twice = whole & self.contributors[term]
            if twice:
                raise refuse(f"the contribution of rank {_ranks(twice)[0]} is summed twice")
            whole |= self.contributors[term]
        self.contributors.append(whole)
        trees = [self.tree[term] for term in terms]
        return (*sorted(trees[:2]), *trees[2:])

    def check_transfers(self) -> None:
        """Numbers in range; a reduction's value is an operand of its result."""
        for t, (value, result, src, dst) in enumerate(self.transfers):
            for name, number, limit in (
                ("value", value, len(self.chunk)),
                ("result", result, len(self.chunk)),
                ("source rank", src, self.ranks + len(self.able)),
                ("destination rank", dst, self.ranks + len(self.able)),
            ):
                if not 0 <= number < limit:
                    message = f"step {self.step[t]}, transfer {t}: {name} {number} is not in 0..{limit - 1}"
                    raise FaultError(Verdict(False, message, step=self.step[t], transfer=t))
            if self.step[t] < 0:
                raise self.at(t, f"step {self.step[t]} is negative")
            if result != value and value not in self.operands[result]:
                raise self.at(t, f"its value {value} is no operand of its result, value {result}")
            if result == value and src == dst:
                raise self.at(t, f"a {'rank' if src < self.ranks else 'switch'} sends a copy to itself")

    def check_switches(self) -> None:
        """Switches do what they can: add, in a number format of theirs, and copy."""
        if not self.schedule.in_network:
            return
        departures: dict[Held, int] = {}
        for t, (value, result, src, dst) in enumerate(self.transfers):
            if src >= self.ranks and not self.able[src - self.ranks].multicast:
                first = departures.setdefault((src, value), t)
                if first != t:
                    raise self.at(t, f"transfer {first} takes this value from it already, and it does not multicast")
            if dst < self.ranks:
                continue
            switch = self.able[dst - self.ranks]
            if value == result and not switch.multicast:
                raise self.at(t, "it does not multicast, so it can do nothing with a copy", dst)
            if value != result and not switch.reduces:
                raise self.at(t, "it does not reduce", dst)
            if value != result and src == dst:
                raise self.at(t, "a switch adds what arrives; it has nothing of its own", dst)
            if value != result and switch.aggregator and self.schedule.number_format not in switch.aggregator.formats:
                adds = f"{switch.aggregator.name} adds {', '.join(switch.aggregator.formats)}"
                raise self.at(t, f"{adds}, not {self.schedule.number_format or 'an unnamed number format'}", dst)

    def check_routes(self) -> None:
        """Every route is a path of the topology from source to destination."""
        topology, members = self.schedule.topology, self.schedule.collective.members
        kinds = [node.kind for node in topology.nodes]
        outside = [m for m in members if not 0 <= m < len(kinds) or kinds[m] != "rank"]
        if outside:
            raise FaultError(Verdict(False, f"member {outside[0]} is not a rank of {topology.name}"))
        offset = self.schedule.transfers.offset.tolist()
        links = self.schedule.transfers.link.tolist()
        if (
            len(offset) != len(self.transfers) + 1
            or offset[0] != 0
            or offset[-1] != len(links)
            or offset != sorted(offset)
        ):
            raise FaultError(Verdict(False, "the route offsets do not fit the transfers"))
        homes = [*members, *(switch.id for switch in self.able)]
        for t, (_, _, src, dst) in enumerate(self.transfers):
            start = node = homes[src]
            end = homes[dst]
            route = links[offset[t] : offset[t + 1]]
            if not route and src != dst:
                raise self.at(t, "its route is empty")
            for hop, number in enumerate(route):
                if not 0 <= number < len(topology.links):
                    raise self.at(t, f"link {number} does not exist in {topology.name}")
                link = topology.links[number]
                if link.src != node:
                    raise self.at(
                        t,
                        f"link {number} of its route leaves {topology.nodes[link.src].name}, "
                        f"but the message is at {topology.nodes[node].name}",
                    )
                node = link.dst
                if hop + 1 < len(route) and kinds[node] == "rank":
                    raise self.at(
                        t, f"its route passes through {topology.nodes[node].name}; only switches and NICs forward"
                    )
                if hop + 1 < len(route) and node in (start, end):
                    raise self.at(t, f"its route passes through {topology.nodes[node].name}, which is one of its ends")
            if node != end:
                raise self.at(t, f"its route ends at {topology.nodes[node].name}, not at {self.name(dst)}")

    def play(self) -> None:
        """Step by step: who holds what. Fills `held` and `spent`."""
        for value, rank in enumerate(self.schedule.values.rank.tolist()):
            if rank >= 0:
                self.held[rank, value] = []
        pending: dict[Held, set[int]] = {}  # a sum -> operands that have neither arrived nor are held
        arrived: dict[Held, dict[int, int]] = defaultdict(dict)  # a sum -> operand -> transfer
        by_step: list[list[int]] = [[] for _ in range(self.steps)]
        for t, step in enumerate(self.step):
            by_step[step].append(t)
        for transfers in by_step:
            for t in transfers:
                value, _, src, _ = self.transfers[t]
                if (src, value) not in self.held:
                    raise self.at(t, f"{self.name(src)} does not hold {self.told(value)} by then")
            brought: list[Held] = []
            for t in transfers:
                value, result, src, dst = self.transfers[t]
                if src != dst and (dst, value) in self.held:
                    raise self.at(t, f"needless: {self.name(dst)} holds {self.told(value)} already", dst)
                if (dst, result) in self.held:
                    raise self.at(t, f"needless: {self.name(dst)} holds {self.told(result)} already", dst)
                if result == value:
                    self.held[dst, value] = [t]
                    brought.append((dst, value))
                    continue
                first = arrived[dst, result].setdefault(value, t)
                if first != t:
                    raise self.at(t, f"needless: transfer {first} brings {self.name(dst)} the same operand", dst)
                own = () if dst >= self.ranks else self.operands[result]  # what a switch holds is no operand
                held = {term for term in own if (dst, term) in self.held}
                open_terms = pending.setdefault((dst, result), set(self.operands[result]) - held)
                open_terms.discard(value)
            self._complete(pending, arrived, brought)
        for (agent, result), missing in pending.items():
            last = max(arrived[agent, result].values(), key=lambda t: self.step[t])
            lacking = self.told(min(missing))
            raise self.at(
                last, f"{self.name(agent)} never gets {lacking}, the other operand of {self.told(result)}", agent
            )

    def _complete(
        self, pending: dict[Held, set[int]], arrived: dict[Held, dict[int, int]], brought: list[Held]
    ) -> None:
        """Ends a step: sums whose operands are all there come into being, and may complete others."""
        waiting: dict[Held, list[Held]] = defaultdict(list)
        for agent, result in pending:
            for term in pending[agent, result] if agent < self.ranks else ():
                waiting[agent, term].append((agent, result))
        ready = [held for held, missing in pending.items() if not missing]
        while ready or brought:
            for held in brought:
                for total in waiting.pop(held, ()):
                    pending[total].discard(held[1])
                    if not pending[total]:
                        ready.append(total)
            brought = ready
            ready = []
            for total in brought:
                del pending[total]
                self.held[total] = list(arrived[total].values())
                self.spent[total] = [term for term in self.operands[total[1]] if term not in arrived[total]]

    def check_outcome(self) -> None:
        """Demanded ranks end with whole values, the same everywhere; and nothing moved that nobody needs."""
        whole: dict[tuple[int, int], list[int]] = defaultdict(list)  # (rank, chunk) -> complete values held
        full: dict[range, int] = {}
        complete = []
        for chunk, contributors in zip(self.chunk, self.contributors, strict=True):
            sources = self.contract.sources(self.block[chunk])
            if sources not in full:
                full[sources] = _bits(sources)
            complete.append(contributors == full[sources])
        for rank, value in self.held:
            if complete[value]:
                whole[rank, self.chunk[value]].append(value)
        chunks = self.orbits.chunks if self.orbits else range(len(self.block))
        wanted = [(rank, chunk) for chunk in chunks for rank in self.contract.targets(self.block[chunk])]
        common: dict[int, set[int]] = {}
        first: dict[int, int] = {}
        for rank, chunk in wanted:
            trees = {self.tree[value] for value in whole[rank, chunk]}
            if not trees:
                raise self._lacks(rank, chunk)
            common[chunk] = common.get(chunk, trees) & trees
            if not common[chunk]:
                message = f"rank {rank} ends with chunk {chunk} summed in another order than rank {first[chunk]}"
                raise FaultError(Verdict(False, message, agent=rank, step=self.steps - 1, chunk=chunk))
            first.setdefault(chunk, rank)
        goals = [
            (rank, next(value for value in whole[rank, chunk] if self.tree[value] in common[chunk]))
            for rank, chunk in wanted
        ]
        self._check_necessity(goals)

    def _lacks(self, rank: int, chunk: int) -> FaultError:
        held = max(
            (value for at, value in self.held if at == rank and self.chunk[value] == chunk),
            key=lambda value: self.contributors[value].bit_count(),
            default=None,
        )
        lacking = f"rank {rank} never receives chunk {chunk}"
        if held is not None:
            have, need = self.contributors[held], _bits(self.contract.sources(self.block[chunk]))
            lacking = f"rank {rank} lacks the contributions of ranks {listed(_ranks(need & ~have))} to chunk {chunk}"
        message = f"after step {self.steps - 1}, the last, {lacking}"
        return FaultError(Verdict(False, message, agent=rank, step=self.steps - 1, chunk=chunk))

    def _check_necessity(self, goals: list[Held]) -> None:
        """Walks back from the demanded values; transfers that are never met serve nobody."""
        needed = [False] * len(self.transfers)
        seen: set[Held] = set()
        todo = goals
        while todo:
            held = todo.pop()
            if held in seen:
                continue
            seen.add(held)
            todo += [(held[0], term) for term in self.spent.get(held, ())]
            for t in self.held[held]:
                needed[t] = True
                todo.append((self.transfers[t][2], self.transfers[t][0]))
        if not all(needed):
            t = needed.index(False)
            dst = self.transfers[t][3]
            raise self.at(t, f"needless: {self.name(dst)} neither needs it nor passes it on to who does", dst)

    def check_slots(self) -> None:
        """A switch keeps a sum from the step of its first operand until it has left for the last time."""
        if not self.schedule.in_network:
            return
        leaves: dict[Held, int] = {}
        for t, (value, _, src, _) in enumerate(self.transfers):
            leaves[src, value] = max(self.step[t], leaves.get((src, value), 0))
        kept: dict[int, list[tuple[int, int, int]]] = defaultdict(list)  # switch -> (first step, end, transfer)
        for (agent, value), brought in self.held.items():
            if agent >= self.ranks and self.transfers[brought[0]][0] != value:
                first = min(brought, key=lambda t: self.step[t])
                kept[agent].append((self.step[first], max(leaves[agent, value], self.step[first] + 1), first))
        for agent, sums in kept.items():
            aggregator = self.able[agent - self.ranks].aggregator
            if aggregator is None or aggregator.slots is None:
                continue
            open_until: list[int] = []
            for start, end, transfer in sorted(sums):
                while open_until and open_until[0] <= start:
                    heapq.heappop(open_until)
                heapq.heappush(open_until, end)
                if len(open_until) > aggregator.slots:
                    slots = f"{aggregator.name} has {aggregator.slots}"
                    raise self.at(transfer, f"it would hold {len(open_until)} sums at once; {slots} slots", agent)

    def check_capacity(self) -> None:
        """Rounds: in a step of r rounds a link of u units carries chunk weights up to r * u."""
        schedule = self.schedule
        rounds = schedule.rounds.tolist()
        if not rounds:
            return
        if len(rounds) != self.steps:
            raise FaultError(
                Verdict(False, f"it has {self.steps} steps but rounds for {len(rounds)}", step=self.steps - 1)
            )
        if min(rounds) < 1:
            step = rounds.index(min(rounds))
            raise FaultError(
                Verdict(False, f"step {step} lasts {rounds[step]} rounds; it must last at least 1", step=step)
            )
        bandwidths = [link.bandwidth for link in schedule.topology.links]
        whole = lcm(*(bandwidth.denominator for bandwidth in bandwidths))
        unit = Fraction(gcd(*(int(bandwidth * whole) for bandwidth in bandwidths)), whole)
        weight = schedule.collective.chunks.weight.tolist()
        load: dict[tuple[int, int], int] = defaultdict(int)  # (step, link); of representatives, on the orbit's least
        orbits = self.orbits
        for t in np.argsort(schedule.transfers.step, kind="stable").tolist():
            step = self.step[t]
            for link in schedule.transfers.route(t):
                times = orbits.order // orbits.link_size[link] if orbits else 1
                loaded = step, orbits.link[link] if orbits else link
                load[loaded] += times * weight[self.chunk[self.transfers[t][0]]]
                room = rounds[step] * bandwidths[link] / unit
                if load[loaded] > room:
                    ends = schedule.topology.links[link]
                    names = [schedule.topology.nodes[node].name for node in (ends.src, ends.dst)]
                    raise self.at(
                        t,
                        f"link {link} ({names[0]} -> {names[1]}) would carry weight {load[loaded]}; "
                        f"in {rounds[step]} rounds it carries {room}",
                    )


def _bits(ranks: range) -> int:
    return sum(1 << rank for rank in ranks)


def _ranks(bits: int) -> list[int]:
    return [rank for rank in range(bits.bit_length()) if bits >> rank & 1]
