"""The admission lemma of csrc/core/runtime/group.hpp, model-checked: proven Programs together do not deadlock.

The model keeps what matters of a Group: operations get numbers in one agreed order; a rank runs at most the W oldest it
has not finished, operation q over the streams of window q mod W; a stream holds `depth` frames. Every interleaving of
every rank's lanes is explored. The same model with the agreed order broken must deadlock or mix frames up, or the model
would prove nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class State:
    positions: tuple[tuple[tuple[int, ...], ...], ...]  # rank, operation, lane -> steps done
    streams: tuple[tuple[tuple[int, int, int], tuple[int, ...]], ...]  # (source, destination, window) -> operations


class Model:
    def __init__(self, operations: list[Operation], windows: int, depth: int, orders: list[list[int]]) -> None:
        self.operations, self.windows, self.depth, self.orders = operations, windows, depth, orders
        self.ranks = len(operations[0])

    def start(self) -> State:
        return State(tuple(tuple((0,) * len(op[r]) for op in self.operations) for r in range(self.ranks)), ())

    def finished(self, state: State, rank: int, q: int) -> bool:
        lanes = self.operations[q][rank]
        return all(done == len(lane) for done, lane in zip(state.positions[rank][q], lanes, strict=True))

    def complete(self, state: State) -> bool:
        return all(self.finished(state, r, q) for r in range(self.ranks) for q in range(len(self.operations)))

    def admitted(self, state: State, rank: int) -> list[tuple[int, int]]:
        """(place in this rank's order, operation) of what it may run now."""
        order = self.orders[rank]
        completed = 0
        while completed < len(order) and self.finished(state, rank, order[completed]):
            completed += 1
        return list(enumerate(order))[completed : completed + self.windows]

    def successors(self, state: State) -> list[State]:
        out = []
        streams = dict(state.streams)
        for rank in range(self.ranks):
            for place, q in self.admitted(state, rank):
                for lane, done in enumerate(state.positions[rank][q]):
                    steps = self.operations[q][rank][lane]
                    if done == len(steps):
                        continue
                    kind, peer = steps[done]
                    key = (rank, peer, place % self.windows) if kind == "send" else (peer, rank, place % self.windows)
                    frames = streams.get(key, ())
                    if kind == "send":
                        if len(frames) == self.depth:
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
