"""Which ranks keep which part of the training state in memory, and what one rank holds of it.

layer's flat buffer   [   a piece   |   a piece   | ..     copies + 1 ranks keep a piece, on other hosts if possible
sharded (ZeRO)         rank 0 ──copy──► rank 1             only rank 0 has it: its ward on another host gets a copy
not sharded            ranks 0, 1     ranks 1, 2           all have it: each saves a part of it, and nothing is sent

Copies of one step are a version. There is memory for two, used in turn: while one is made, the previous one stays
complete, so that there is always a step to go back to (Wang et al. 2023, Gemini, section 4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from syntony.trainer.state.parts import Cut

UNIT = 64
"""Elements that no piece cuts."""
_MARK = 2  # elements at a bundle's end that identify its version


class Piece(NamedTuple):
    """Elements [begin, end) of the flat buffer of a cut, by its number in the table."""

    cut: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


@dataclass(frozen=True)
class Bundle:
    """Pieces of one cut that the same ranks keep, adjacent in memory; always sent as a whole.

    live        keepers that train with these elements, the first of which sends them to
    wards       keepers that do not
    """

    live: tuple[int, ...]
    wards: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def keepers(self) -> tuple[int, ...]:
        return self.live + self.wards

    def elements(self, kinds: int) -> int:
        """Its size, with weights and `kinds` kinds of optimizer state, and its mark."""
        return sum(piece.size for piece in self.pieces) * (1 + kinds) + _MARK


@dataclass(frozen=True)
class Table:
    """Who keeps what under one layout. The same on all ranks.

    cuts       by number
    bundles    in the order of layers
    kinds      the names of the optimizer's state per element
    """

    cuts: tuple[Cut, ...]
    bundles: tuple[Bundle, ...]
    kinds: tuple[str, ...]

    def kept_by(self, rank: int) -> list[Bundle]:
        return [bundle for bundle in self.bundles if rank in bundle.keepers]


class Version(NamedTuple):
    """The state before step `step` (steps done), as laid out in the job's `layout`-th layout. Ordered."""

    step: int
    layout: int


def placed(
    live: Sequence[Iterable[tuple[Cut, int, int]]], hosts: Sequence[int], copies: int, kinds: Sequence[str] = ()
) -> Table:
    """Assigns keepers so that every piece survives the loss of any `copies` ranks, and of hosts if there are enough.

    live     by rank: the runs [begin, end) of cuts' flat buffers that it trains with
    hosts    by rank, including ranks that have nothing
    copies   beside the state itself; fewer if there are not that many other ranks
    """
    holders: dict[tuple[Cut, int, int], list[int]] = {}
    for rank, runs in enumerate(live):
        for run in runs:
            holders.setdefault(run, []).append(rank)
    numbers: dict[Cut, int] = {}
    bundles: dict[tuple[int, tuple[int, ...], tuple[int, ...]], list[Piece]] = defaultdict(list)
    for (cut, begin, end), owners in holders.items():
        number = numbers.setdefault(cut, len(numbers))
        units, n = -(-(end - begin) // UNIT), len(owners)
        for part, owner in enumerate(owners):
            first, last = (min(end, begin + UNIT * (units * which // n)) for which in (part, part + 1))
            if first < last:
                keepers = _keepers(owner, owners, hosts, copies + 1)
                alive = tuple(rank for rank in keepers if rank in owners)
                wards = tuple(rank for rank in keepers if rank not in owners)
                bundles[number, alive, wards].append(Piece(number, first, last))
    found = (Bundle(alive, wards, tuple(pieces)) for (_, alive, wards), pieces in bundles.items())
    return Table(tuple(numbers), tuple(found), tuple(kinds))


def _keepers(owner: int, owners: Sequence[int], hosts: Sequence[int], count: int) -> list[int]:
    """Preferences, in order: another host, a rank that already has the data, the owner's position on its host, the next
    rank."""
    ranks, found = len(hosts), [owner]
    places = [hosts[:rank].count(host) for rank, host in enumerate(hosts)]
    while len(found) < min(count, ranks):
        taken = {hosts[rank] for rank in found}

        def last(rank: int, taken: set[int] = taken) -> tuple[bool, bool, int, int]:
            away = (places[rank] - places[owner]) % hosts.count(hosts[rank])
            return hosts[rank] in taken, rank not in owners, away, (rank - owner) % ranks

        found.append(min((rank for rank in range(ranks) if rank not in found), key=last))
    return found


@dataclass
class _Slot:
    """Memory for one version: buffers by bundle, and which of them are complete."""

    step: int = -1
    buffers: dict[Bundle, Tensor] = field(default_factory=dict)
    there: set[Bundle] = field(default_factory=set)
    counts: dict[str, Tensor] = field(default_factory=dict)


class Held:
    """What one rank keeps under one layout: its bundles in two versions."""

    def __init__(self, table: Table, rank: int, layout: int) -> None:
        self.table, self.layout = table, layout
        self.bundles = table.kept_by(rank)
        self._slots = (_Slot(), _Slot())

    @property
    def bytes(self) -> int:
        """The size of both versions."""
        return 2 * 4 * sum(bundle.elements(len(self.table.kinds)) for bundle in self.bundles)

    def open(self, step: int) -> None:
        """Begins a version in place of the older one, which becomes invalid."""
        slot = min(self._slots, key=lambda slot: slot.step)
        slot.step = step
        slot.there.clear()
        slot.counts = {}
        for bundle in self.bundles:
            if bundle not in slot.buffers:
                slot.buffers[bundle] = torch.zeros(bundle.elements(len(self.table.kinds)))
            _mark(slot.buffers[bundle], -1)

    def buffer(self, bundle: Bundle) -> Tensor:
        """For the open version: every piece's weights, then its optimizer state, kind by kind; at the end the mark."""
        return self._newest.buffers[bundle]

    def mark(self, bundle: Bundle) -> None:
        """Marks a bundle that is copied here as complete."""
        slot = self._newest
        _mark(slot.buffers[bundle], slot.step)
        slot.there.add(bundle)

    def arrived(self, bundle: Bundle) -> None:
        """Marks a received bundle as complete. Raises RuntimeError if it is of another version."""
        slot = self._newest
        found = int(slot.buffers[bundle][-_MARK:].view(torch.int64))
        if found != slot.step:
            raise RuntimeError(
                f"a copy of step {slot.step} was awaited from rank {bundle.live[0]}, one of step {found} came"
            )
        slot.there.add(bundle)

    @property
    def counts(self) -> dict[str, Tensor]:
        """The optimizer's counters in the open version."""
        return self._newest.counts

    def offers(self) -> dict[Version, list[int]]:
        """The complete bundles: their numbers in the table, by version."""
        numbers = {bundle: number for number, bundle in enumerate(self.table.bundles)}
        return {
            Version(slot.step, self.layout): sorted(numbers[bundle] for bundle in slot.there)
            for slot in self._slots
            if slot.step >= 0
        }

    def content(self, step: int, bundle: Bundle) -> Tensor:
        """A bundle that was offered."""
        return self._slot(step).buffers[bundle]

    def counted(self, step: int) -> dict[str, Tensor]:
        """The optimizer's counters in an offered version; empty if this rank copied nothing of it."""
        return self._slot(step).counts

    def _slot(self, step: int) -> _Slot:
        (slot,) = (slot for slot in self._slots if slot.step == step)
        return slot

    @property
    def _newest(self) -> _Slot:
        return max(self._slots, key=lambda slot: slot.step)


def _mark(buffer: Tensor, step: int) -> None:
    buffer[-_MARK:].view(torch.int64).fill_(step)
