"""The admission lemma of csrc/core/group/group.hpp, model-checked: proven Programs together do not deadlock.

The model keeps what matters of a Group: the operations of a class get numbers in one agreed order; a rank runs at most
the W oldest of each class that it has not finished, operation q over the streams of its class's window q mod W; a
stream holds `depth` frames; while something more urgent is in flight on a rank, a less urgent operation keeps one frame
on a stream, until nothing moves any more. Every interleaving of every rank's lanes is explored. The same model with the
agreed order broken, with one order for two classes, or without an end to yielding, must deadlock or mix frames up, or
the model would prove nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import pytest

Step = tuple[str, int]  # ("send" | "recv", peer)
Lane = tuple[Step, ...]
Operation = tuple[tuple[Lane, ...], ...]  # lanes by rank


def ring(ranks: int, hops: int) -> Operation:
    return tuple(((("send", (r + 1) % ranks),) * hops, (("recv", (r - 1) % ranks),) * hops) for r in range(ranks))


def exchange(ranks: int) -> Operation:
    """Everybody to everybody, one lane per connection end."""
    return tuple(
        tuple([(("send", p),) for p in range(ranks) if p != r] + [(("recv", p),) for p in range(ranks) if p != r])
        for r in range(ranks)
    )


def relay(ranks: int) -> Operation:
    """A chain 0 -> 1 -> ..: one lane that receives, then sends."""
    chain = []
    for r in range(ranks):
        lane: list[Step] = []
        if r > 0:
            lane.append(("recv", r - 1))
        if r < ranks - 1:
            lane.append(("send", r + 1))
        chain.append((tuple(lane),))
    return tuple(chain)


def greeting(ranks: int) -> Operation:
    """Each of two ranks sends two frames before it takes any: connections must hold both."""
    assert ranks == 2
    return tuple(((("send", 1 - r), ("send", 1 - r), ("recv", 1 - r), ("recv", 1 - r)),) for r in range(ranks))


Stream = tuple[int, int, int, int]  # source, destination, class, window


@dataclass(frozen=True)
class State:
    positions: tuple[tuple[tuple[int, ...], ...], ...]  # rank, operation, lane -> steps done
    streams: tuple[tuple[Stream, tuple[int, ...]], ...]  # -> operations of the frames in it


@dataclass(frozen=True)
class Model:
    operations: Sequence[Operation]
    windows: int  # of each class
    depth: int
    orders: Sequence[Sequence[int]]  # by rank: operations as it launches them
    classes: Sequence[int] = ()  # by operation; higher is more urgent. Default: all alike
    waited: tuple[tuple[int, int], ...] = ()  # (rank, operation): it launches nothing more until this one is finished
    yields: bool = True  # to what is more urgent
    patience: bool = True  # yielding ends

    def class_of(self, q: int) -> int:
        return self.classes[q] if self.classes else 0

    def start(self) -> State:
        ranks = range(len(self.operations[0]))
        return State(tuple(tuple((0,) * len(op[r]) for op in self.operations) for r in ranks), ())

    def finished(self, state: State, rank: int, q: int) -> bool:
        lanes = self.operations[q][rank]
        return all(done == len(lane) for done, lane in zip(state.positions[rank][q], lanes, strict=True))

    def complete(self, state: State) -> bool:
        return all(self.finished(state, r, q) for r in range(len(self.orders)) for q in range(len(self.operations)))

    def launched(self, state: State, rank: int) -> list[int]:
        out = []
        for q in self.orders[rank]:
            out.append(q)
            if (rank, q) in self.waited and not self.finished(state, rank, q):
                break
        return out

    def admitted(self, state: State, rank: int) -> list[tuple[int, int, bool]]:
        """(window, operation, whether it yields) of what a rank may run now."""
        out = []
        launched = self.launched(state, rank)
        urgent = False
        for level in sorted({self.class_of(q) for q in launched}, reverse=True):
            track = [q for q in launched if self.class_of(q) == level]
            completed = 0
            while completed < len(track) and self.finished(state, rank, track[completed]):
                completed += 1
            for place, q in list(enumerate(track))[completed : completed + self.windows]:
                out.append((place % self.windows, q, urgent and self.yields))
            urgent |= completed < len(track)
        return out

    def successors(self, state: State) -> list[State]:
        following = self.moves(state, self.depth if not self.yields else 1)
        return following or (self.moves(state, self.depth) if self.patience else [])

    def moves(self, state: State, yielding_depth: int) -> list[State]:
        out = []
        streams = dict(state.streams)
        for rank in range(len(self.orders)):
            for window, q, yields in self.admitted(state, rank):
                for lane, done in enumerate(state.positions[rank][q]):
                    steps = self.operations[q][rank][lane]
                    if done == len(steps):
                        continue
                    kind, peer = steps[done]
                    ends = (rank, peer) if kind == "send" else (peer, rank)
                    key = (*ends, self.class_of(q), window)
                    frames = streams.get(key, ())
                    if kind == "send":
                        if len(frames) >= (yielding_depth if yields else self.depth):
                            continue
                        frames = (*frames, q)
                    else:
                        if not frames:
                            continue
                        if frames[0] != q:
                            raise AssertionError(f"rank {rank} takes a frame of operation {frames[0]} for {q}")
                        frames = frames[1:]
                    changed = {**streams, key: frames}
                    of_rank = [list(p) for p in state.positions[rank]]
                    of_rank[q][lane] += 1
                    positions = list(state.positions)
                    positions[rank] = tuple(tuple(p) for p in of_rank)
                    out.append(State(tuple(positions), tuple(sorted((k, f) for k, f in changed.items() if f))))
        return out

    def check(self) -> int:
        """Explores everything; AssertionError for a deadlock or a frame in the wrong hands. Returns the states."""
        seen = {self.start()}
        todo = [self.start()]
        while todo:
            state = todo.pop()
            following = self.successors(state)
            assert following or self.complete(state), f"deadlock in {state}"
            for after in following:
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
        return len(seen)


TWO_RANKS = [ring(2, 2), exchange(2), relay(2)]
THREE_RANKS = [ring(3, 1), relay(3)]


@pytest.mark.parametrize("windows", [1, 2])
@pytest.mark.parametrize("depth", [1, 2])
def test_agreed_order_never_deadlocks(windows: int, depth: int) -> None:
    for programs, ranks in ((TWO_RANKS, 2), (THREE_RANKS, 3)):
        for sequence in permutations(programs):
            order = list(range(len(sequence)))
            states = Model(list(sequence), windows, depth, [order] * ranks).check()
            assert states > 10  # it did explore something


@pytest.mark.parametrize("windows", [1, 2])
def test_without_the_agreed_order_it_does(windows: int) -> None:
    programs = [ring(2, 2), exchange(2), ring(2, 2)]
    with pytest.raises(AssertionError, match=r"deadlock|takes a frame"):
        Model(programs, windows, 1, [[0, 1, 2], [1, 0, 2]]).check()


@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 0, 1), (0, 1, 0), (1, 0, 0)])
def test_classes_need_no_order_between_them(classes: tuple[int, ...]) -> None:
    programs = [ring(2, 1), relay(2), exchange(2)]
    for other in permutations(range(3)):
        # Of one class, rank 1 keeps the order of rank 0; where classes differ, it launches as it likes.
        if any(classes[a] == classes[b] and other.index(a) > other.index(b) for b in range(3) for a in range(b)):
            continue
        assert Model(programs, 1, 1, [[0, 1, 2], other], classes).check() > 10


def test_classes_that_share_their_numbers_do() -> None:
    """What the tracks are for: the same orders in one class."""
    programs = [ring(2, 2), exchange(2), ring(2, 2)]
    Model(programs, 1, 1, [[0, 1, 2], [1, 0, 2]], [0, 1, 0]).check()
    with pytest.raises(AssertionError, match=r"deadlock|takes a frame"):
        Model(programs, 1, 1, [[0, 1, 2], [1, 0, 2]], [0, 0, 0]).check()


def test_who_yields_does_so_for_a_while_only() -> None:
    """Each rank launches something urgent, and what the other one waits for only when the bulk, which needs two frames
    on its streams, is finished."""
    programs = [greeting(2), exchange(2), exchange(2)]
    model = Model(programs, 2, 2, [[1, 0, 2], [2, 0, 1]], [0, 1, 2], waited=((0, 0), (1, 0)))
    model.check()
    with pytest.raises(AssertionError, match="deadlock"):
        replace(model, patience=False).check()
    replace(model, patience=False, yields=False).check()
