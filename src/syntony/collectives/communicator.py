"""The Python Communicator: how a group is formed, tuned, inspected and closed. Its collectives are in verbs.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from operator import index
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from syntony import _core
from syntony.collectives import calls, proof
from syntony.collectives.bootstrap import process
from syntony.collectives.buffers import UsageError
from syntony.collectives.recorder import records as recorder
from syntony.collectives.recorder.agreed import agreed_rails, agreed_slow_wires
from syntony.collectives.recorder.records import Dump
from syntony.collectives.recorder.slow_wires import SlowWire
from syntony.collectives.tuner.agreement import CURRENT
from syntony.collectives.tuner.probe import probe_if_asked, tune
from syntony.collectives.verbs import Verbs

if TYPE_CHECKING:
    from syntony.collectives.bootstrap.launch import Exchange


class Communicator(Verbs):
    """One rank's end of a group: its collectives (Verbs), and the groups made from it.

    As a context manager it closes the group at the end; an exception aborts the group on every rank.
    """

    def __init__(self, core: _core.Communicator) -> None:
        """Wraps a group that the core has made; use `create` to make one."""
        if not isinstance(core, _core.Communicator):
            raise UsageError(
                f"a Communicator is made by Communicator.create(bootstrap), not from a {type(core).__name__} itself"
            )
        super().__init__(core)
        self._slow: set[tuple[int, int]] = set()  # wires that were slow when last asked
        self._unbalanced = False  # rates are those of hosts that had lost network cards when last asked

    @classmethod
    def create(
        cls, bootstrap: Exchange, timeout: float = 1800.0, name: str = "default", job_ranks: Sequence[int] = ()
    ) -> Communicator:
        """Meets the other ranks. Collective. `job_ranks`: their ranks in the job, for records, if not 0, 1, .."""
        core = _core.Communicator(process.current(), bootstrap, calls.seconds(timeout), name, job_ranks, CURRENT)
        if proof.wanted():
            proof.prove_builders(core.size, core.boxes)
        group = cls(core)
        _answer_if_asked(job_ranks[core.rank] if job_ranks else core.rank)
        probe_if_asked(group)
        return group

    def set_priority(self, priority: str | None) -> None:
        """Sets the priority of calls that give none; every rank must set the same, before its first call."""
        self._core.set_priority(priority)

    def set_canonical(self, canonical: bool) -> None:
        """Whether all_reduce and reduce_scatter without an algorithm use `pairwise`, which always sums in the same
        order; every rank must set the same."""
        self._core.set_canonical(canonical)

    def capsule(self) -> object:
        """The core's communicator as a capsule, for syntony._torch."""
        return self._core.capsule()

    @property
    def boxes(self) -> list[list[int]]:
        """The ranks of each host."""
        return self._core.boxes

    @property
    def crowded(self) -> bool:
        """True if some ranks share processors: they are more than the CPUs that they may use."""
        return self._core.crowded

    def set_rates(self, rates: Sequence[float]) -> None:
        """Sets how much each rank can send and receive per second, in any unit. Every rank must set the same rates
        between the same calls.

        From then on, a large all_reduce with one rank per host runs `two_shot` with matching shares: a rank with a
        slower wire sums less for the others. A rate of 0 is for a rank that always arrives late: it sums nothing, so
        the others have finished their sums when it arrives. Equal rates are the usual state. Raises ValueError unless
        there is one rate per rank and rates are not negative and not all 0.
        """
        self._core.set_shares(_core.shares_for([float(rate) for rate in rates]))

    def tune(self) -> None:
        """Measures wires and algorithms again, switches to the best choices, and caches them for later groups.

        For a network that has changed, for example after `syntony trace` names a wire that has become slow. It also
        detects again which hosts are near each other. Takes seconds. Every rank must call it between the same calls.
        """
        if self.size > 1:
            tune(self)

    def tune_if_slow(self) -> list[SlowWire]:
        """Tunes again if a wire between hosts has become slow; returns the wires because of which it has.

        Ranks exchange what the kernel has counted on their wires (some KiB each), so all decide alike. A wire is slow
        compared with its own past; it leads to one tuning, unless it recovers in between. It takes about a minute of
        traffic until a rate is known, and 20 s until it is known to have dropped. Every rank must call it between the
        same calls, for instance once in a hundred steps; without a slow wire it takes some milliseconds. Records must
        be on (SYNTONY_TRACE_ENTRIES is not 0).
        """
        if self.size == 1:
            return []
        slow = {(wire.source, wire.destination): wire for wire in agreed_slow_wires(self)}
        fresh = [wire for ends, wire in slow.items() if ends not in self._slow]
        self._slow = set(slow)
        if fresh:
            self.tune()
        return fresh

    def balance_rails(self) -> list[float]:
        """Sets each rank's rate (`set_rates`) to the share of its network that has not failed, and returns the rates.

        Where hosts have several network cards and one fails, its traffic moves to the others by itself, and back once
        it has recovered; this gives the host with fewer cards less to do meanwhile. Large all_reduces of `auto` do that
        by themselves where no table or rule is followed (docs/transports.md). Every rank must call it between the same
        calls, for instance once in a hundred steps; it takes some milliseconds. Without a failure it changes nothing.
        """
        rates = agreed_rails(self)
        if min(rates) < 1 or self._unbalanced:
            self.set_rates(rates)
        self._unbalanced = min(rates) < 1
        return rates

    # ---- other groups -----------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[int]:
        """By rank: its rank in the group that this one was split or shrunk from."""
        return self._core.members

    def split(
        self, color: int | None, key: int = 0, *, timeout: float | None = None, name: str = "split"
    ) -> Communicator | None:
        """A group of the ranks with the same `color`, ordered by `key`, then by rank; None for ranks without a color.

        Collective over this group, which stays usable beside the new ones. Loaded algorithms stay with the old group.
        """
        if color is not None and not 0 <= calls.whole(color) < 1 << 64:
            raise UsageError(f"a color is a whole number from 0 to 2^64 - 1, or None, not {color!r}")
        core = self._core.split(color, index(key), calls.seconds(timeout), name)
        return None if core is None else Communicator(core)

    def shrink(
        self, excluded: Sequence[int] = (), *, timeout: float | None = None, name: str = "shrunk"
    ) -> Communicator:
        """A group of the live ranks that nobody has `excluded`, in their old order. Collective over them.

        It needs only this group, and works after a failure: catch the CommunicationError, shrink, continue. It closes
        this group. A rank that hangs does not count as dead: exclude it by its number. Raises CommunicationError if
        a rank dies meanwhile (it is named; shrink again), if others excluded this rank, or if some ranks do not come.
        """
        ranks = [calls.member("a rank to exclude", rank, self.size) for rank in excluded]
        if self.rank in ranks:
            raise UsageError(f"rank {self.rank} cannot exclude itself when a group shrinks: it only has to close it")
        gpus, self._gpus = self._gpus, None
        if gpus is not None:
            gpus.leave()
        return Communicator(self._core.shrink(ranks, calls.seconds(timeout), name))

    # ---- the group --------------------------------------------------------------------------------------------------

    def load(self, path: str | Path) -> str:
        """Proves the schedule, portfolio, program or MSCCL XML in a file and makes it an algorithm; returns its name.

        The algorithm of a portfolio chooses its schedule by size. Every rank must load the file before any rank uses
        it. Raises UserError if the file is unreadable, refused by the checker (the first fault is named), for another
        number of ranks, or not supported by this runtime.
        """
        from syntony.synth.engines.portfolio import Portfolio
        from syntony.synth.formats.loading import Loaded, prove, read

        def add(loaded: Loaded, name: str = "") -> str:
            program = prove(loaded, path, self.size)
            self._core.add_program(name or program.name, program)
            return name or program.name

        loaded = read(path)
        if not isinstance(loaded.content, Portfolio):
            return add(loaded)
        entries = loaded.content.entries
        first = entries[0].schedule
        table = f"portfolio of {first.collective.kind} on {first.topology.name}"
        names = [add(Loaded(entry.schedule), f"{table}, {number}") for number, entry in enumerate(entries)]
        ends = [sys.maxsize if entry.last is None else entry.last for entry in entries]
        ranges = [(end, part, "its range in the portfolio") for end, part in zip(ends, names, strict=True)]
        self._core.set_size_ranges(table, first.collective.kind, ranges)
        return table

    def record(self) -> Dump:
        """This group's last operations and the progress of each, even while other threads use it (recorder.py)."""
        return recorder.parse(self._core.record())

    def dump(self, folder: str | Path) -> list[Path]:
        """Writes `folder/syntony_rank_N` with all groups of this process, for `syntony trace` and `torchfrtrace`."""
        return recorder.dump(folder)

    def counters(self) -> str:
        """This group's counters in Prometheus' text format."""
        return self._core.counters()

    def abort(self, why: str) -> None:
        """Ends the group on every rank: all operations fail, naming this rank and `why`."""
        if self._gpus is not None:
            self._gpus.abort(why)
        self._core.abort(why)

    def close(self) -> None:
        """Leaves the group, so that this rank's exit is not reported as a failure to the others.

        After collectives on GPUs it waits for them and, within one host, for the other ranks to close, and raises any
        CommunicationError that has not been reported yet.
        """
        gpus, self._gpus = self._gpus, None
        try:
            if gpus is not None:
                gpus.close()
        finally:
            self._core.shutdown()

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort(f"{type(error).__name__}: {error}")
        self.close()


def _answer_if_asked(job_rank: int) -> None:
    """Serves queries to a running job if the environment asks for it; the server is imported only then."""
    if os.environ.get("SYNTONY_METRICS"):
        from syntony.collectives.recorder import metrics

        metrics.offer_if_asked(job_rank)
    if os.environ.get("SYNTONY_RAS"):
        from syntony.collectives.recorder import ras

        ras.answer_if_asked()
