"""The membership of an elastic job: ranks that continue when some are lost, and admit others.

    ┌─► meet: the last complete step, who has what of it ─► layout for those present ─► restore ─► train ──────┐
    │                                                                                                          │
    ├──── a rank is lost: the survivors shrink the group (which needs only the group itself)       ◄───────────┤
    └──── a rank knocks: at the end of a step all meet anew, with those that join                  ◄───────────┘

Ranks without a place in the layout watch: they keep their state and take part in later meetings. Weights and losses do
not depend on the layout, so the results do not show which ranks were lost (docs/elastic.md).
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial

import numpy as np
from torch import Tensor

from syntony._core import CommunicationError
from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import Exchange, RankError
from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator
from syntony.overlap.predict.gaps import idle_wires
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.step.cost import Cost
from syntony.trainer.automatic import fewer
from syntony.trainer.config import Config
from syntony.trainer.elastic.copies import Copies, kinds_of, runs_of
from syntony.trainer.elastic.door import Door, free_port, is_here, knock, split
from syntony.trainer.elastic.held import Held, Table, Version, placed
from syntony.trainer.elastic.meeting import Kept, Meeting, gathered, newest_whole, swapped
from syntony.trainer.run import text
from syntony.trainer.run.rank import Rank
from syntony.trainer.state.moving import Moving
from syntony.trainer.state.parts import parts_of

_SHRINK = 30.0  # seconds that survivors wait for each other
_JOIN = 10.0  # seconds that all wait for joining ranks
_PATIENCE = 60.0  # seconds that a joining rank waits for a door
_FOREVER = 1e6  # seconds that watching ranks wait


class Grow(Exception):  # noqa: N818
    """A rank wants to join; all ranks have stopped before the same step."""


class Company:
    """One rank's view of the membership. `work` does everything.

    given     the configuration as loaded; `config` is that of the current layout
    layouts   the number of layouts so far, including the current one
    news      what has happened since the last layout, in a sentence
    moved     bytes that moved between ranks for the current layout
    """

    def __init__(self, given: Config, group: Communicator) -> None:
        self.given, self.config, self.layouts, self.news, self.moved = given, given, 0, "", 0
        self._join(group)
        self._held: list[Held] = []  # of the current layout, and of the previous one until the current one is complete
        self._begin: tuple[Version, list[list[int]], Table, dict[str, Tensor]] | None = None
        self._data: text.Text | None = None
        self._copies: Copies | None = None
        self._meet()

    @classmethod
    def found(cls, config: Config, exchange: Exchange) -> Company:
        """With ranks that start together. Collective."""
        return cls(config, Communicator.create(exchange, config.run.timeout, "company"))

    @classmethod
    def join(cls, config: Config, door: str) -> Company | None:
        """Joins at a door; None if the job has ended before any rank was admitted."""
        while (invited := knock(door, _PATIENCE)) is not None:
            rank, ranks, port = invited
            with suppress(ConnectionError, TimeoutError, CommunicationError):
                return cls(config, _grown(config, door, rank, ranks, port))
        return None

    @property
    def rank(self) -> int:
        return self._group.rank

    @property
    def watches(self) -> bool:
        """Whether the layout has no place for this rank."""
        return self.rank >= self.config.world

    @property
    def exchange(self) -> Exchange:
        """The exchange of the training ranks."""
        assert self._active is not None
        return Meeting(self._active)

    def work(self, train: Callable[[Config, Exchange], None]) -> None:
        """Trains to the end, whichever ranks are lost. Raises RankError if nobody can continue."""
        while True:
            try:
                if self.watches:
                    self._watch()
                else:
                    train(self.config, self.exchange)
                    self._ring(growing=False)
                break
            except Grow:
                self._again(self._grow)
            except (RankError, CommunicationError) as error:
                self._again(partial(self._shrink, error))
        if self._door is not None:
            self._door.close()
        self._group.close()

    # ---- what training asks -----------------------------------------------------------------------------------------

    def text(self) -> text.Text:
        """The text, read once."""
        if self._data is None:
            self._data = text.read(self.given.data, self.given.model.context, bool(self.given.run.held_out))
        return self._data

    def restore(self, rank: Rank | None) -> int | None:
        """Loads the agreed state into a new rank; returns the number of completed steps, None without a state.

        Collective over all, including watching ranks (None).
        """
        if self._begin is None:
            return None
        version, shown, table, counts = self._begin
        held = next((held for held in self._held if held.layout == version.layout), None)
        group = self._group
        needs = list(parts_of(rank)) if rank is not None else []
        every = [pickle.loads(blob) for blob in gathered(group, pickle.dumps(needs))]
        kept = Kept(group.rank, group.size, table, version, shown, held, bool(counts))
        moving = Moving(group.rank, every, kept, partial(swapped, group))
        layers = rank.updates.layers if rank is not None else {}
        for index, flats in moving.layers({i: sharded.flat.elements for i, sharded in layers.items()}):
            for kind, flat in flats.items():
                assert rank is not None
                rank.updates.restore(index, kind, flat, counts)
        self.moved = 4 * moving.moved
        return version.step

    def copies(self, rank: Rank, cost: Cost) -> Copies:
        """The copies of the coming steps. Collective over the training ranks."""
        assert self._active is not None
        given = self.given.elastic
        live = [pickle.loads(blob) for blob in gathered(self._active, pickle.dumps(runs_of(rank)))]
        hosts = {member: number for number, box in enumerate(self._active.boxes) for member in box}
        kinds = kinds_of(self.config.optimizer)
        table = placed(live, [hosts[member] for member in range(len(live))], given.copies, kinds)
        self._held.append(Held(table, rank.mesh.rank, self.layouts))
        betas = [line.beta for wire in cost.wires.values() for line in wire.kinds.values() if line.beta > 0]
        idle = idle_wires(simulate(rank.plan, cost), rank.device)
        gaps = {key: seconds / max(betas, default=1e-9) for key, seconds in idle.items()}
        self._copies = Copies(rank, self._held[-1], self._active, gaps, given.every, self._knocked)
        return self._copies

    def after(self, step: int, rank: Rank, settle: Callable[[], object]) -> None:
        """Called after a step. Raises Grow, on all ranks alike, if a rank is admitted now; collective then.

        settle    completes background work that the ranks have started together; collective
        """
        assert self._copies is not None
        if self._copies.whole is not None:
            del self._held[:-1]
        if self._copies.knocked:
            settle()
            rank.rest()
            self._copies.rest(step + 1)
            raise Grow

    # ---- who is here ------------------------------------------------------------------------------------------------

    def _join(self, group: Communicator) -> None:
        self._group = group
        self._active: Communicator | None = None
        self._door: Door | None = None

    def _again(self, change: Callable[[], None]) -> None:
        """Changes the membership, and meets; ranks lost meanwhile are handled as usual."""
        while True:
            try:
                change()
                self._meet()
                return
            except CommunicationError as error:
                change = partial(self._shrink, error)

    def _meet(self) -> None:
        """Agrees on the state to continue from, and on the layout. Collective."""
        mine = hashlib.sha256(json.dumps(asdict(self.given), sort_keys=True).encode()).digest()
        offers = {version: numbers for held in self._held for version, numbers in held.offers().items()}
        whole = self._copies is not None and self._copies.whole is not None
        doors = bool(self.given.elastic.door) and is_here(self.given.elastic.door)
        said = mine, self.layouts, offers, whole or len(self._held) > 1, doors
        words = [pickle.loads(blob) for blob in gathered(self._group, pickle.dumps(said))]
        for rank, (other, *_) in enumerate(words):
            if other != words[0][0]:
                raise UserError(f"rank {rank} has another configuration than rank 0; start all ranks with the same one")
        tables = {held.layout: held.table for held in self._held}
        tables = pickle.loads(gathered(self._group, pickle.dumps(tables) if self.rank == 0 else b"")[0])
        found = newest_whole([word[2] for word in words], tables)
        self._begin = None
        if found is not None:
            version, shown = found
            counted = [held.counted(version.step) for held in self._held if held.layout == version.layout]
            every = [pickle.loads(blob) for blob in gathered(self._group, pickle.dumps(counted[0] if counted else {}))]
            self._begin = version, shown, tables[version.layout], next((c for c in every if c), {})
        elif any(word[3] for word in words):
            raise RankError(
                f"what the ranks that are gone held is lost: [elastic] copies is {self.given.elastic.copies}, "
                "and more ranks were lost at a time than that; [run] save keeps checkpoints on a disk, too"
            )
        self.layouts = 1 + max(word[1] for word in words)
        self.config = fewer(self.given, self._group.size)
        if self.layouts > 1:
            self.config = replace(self.config, overlap=replace(self.config.overlap, profile=0))
        spare = self._group.size > self.config.world
        self._active = self._group.split(0 if not self.watches else None) if spare else self._group
        first = next((rank for rank, word in enumerate(words) if word[4]), None)
        self._opens = first
        if self._door is None and first == self.rank:
            self._door = Door(self.given.elastic.door)
        self._copies = None

    def _shrink(self, error: Exception) -> None:
        """Continues with the survivors. Raises `error` if no rank is lost, since it had another cause."""
        old = self._group
        self._group = old.shrink(timeout=_SHRINK, name="company")
        gone = sorted(set(range(old.size)) - set(self._group.members))
        if not gone:
            raise RankError(str(error)) from error
        self.news = f"rank{'s' * (len(gone) > 1)} {', '.join(map(str, gone))} of {old.size} lost"

    def _grow(self) -> None:
        """Meets with those at the door; those that do not come are left out. Collective over all, between steps."""
        self._ring(growing=True)
        door, size = self.given.elastic.door, self._group.size
        said = b""
        if self._door is not None:
            port = free_port(door)
            said = json.dumps([self._door.admit(size, port), port]).encode()
        guests, port = json.loads(gathered(self._group, said)[self._opens or 0])
        if guests:
            # The rank that opens the door hosts the meeting, which makes it rank 0 there.
            place = (self.rank - (self._opens or 0)) % size
            try:
                grown = _grown(self.given, door, place, size + guests, port)
            except (ConnectionError, TimeoutError, CommunicationError):
                return
            self._group.close()
            self._group = grown
            self.news = f"{guests} rank{'s' * (guests > 1)} joined"

    def _ring(self, growing: bool) -> None:
        """Tells the watching ranks, which listen in `_watch`, that the job has ended, or that a rank joins."""
        if self._group.size > self.config.world and not self.watches:
            self._group.broadcast(np.array([growing]), 0)

    def _watch(self) -> None:
        """Returns when the job has ended."""
        self.restore(None)
        said = np.array([False])
        self._group.broadcast(said, 0, timeout=_FOREVER)
        if said[0]:
            raise Grow

    def _knocked(self) -> bool:
        return self._door is not None and self._door.waiting > 0


def _grown(config: Config, door: str, rank: int, ranks: int, port: int) -> Communicator:
    """The group of the current members and those that join."""
    host, _ = split(door)
    with TcpBootstrap.of_this_job(rank, ranks, host, port, _JOIN) as bootstrap:
        return Communicator.create(bootstrap, config.run.timeout, "company")
