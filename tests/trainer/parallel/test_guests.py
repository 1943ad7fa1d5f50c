"""Parts of an exchange with guests: what comes with each rank's, and together all of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from syntony.trainer.parallel.expert_parallel.guests import Exchange  # noqa: E402

RANKS, LOCAL, HEIGHT, WIDTH = 4, 2, 3, 2


@settings(deadline=None, print_blob=True)
@given(
    rows=st.lists(st.integers(0, 3), min_size=RANKS * RANKS * LOCAL, max_size=RANKS * RANKS * LOCAL),
    guests=st.lists(st.booleans(), min_size=RANKS * LOCAL, max_size=RANKS * LOCAL),
    count=st.sampled_from([1, 2, 4]),
)
def test_parts_are_the_whole_and_guests_come_with_their_homes(rows: list[int], guests: list[bool], count: int) -> None:
    asked_of = torch.tensor(rows).view(RANKS, RANKS * LOCAL)  # [rank, expert]
    guest = torch.tensor(guests).long()
    comes: dict[int, list[set[int]]] = {}
    for place in range(RANKS):
        own = slice(place * LOCAL, (place + 1) * LOCAL)
        going, coming = asked_of[place] * (1 - guest), (asked_of * (1 - guest))[:, own].flatten()
        asked, lent = asked_of[place] * guest, ((asked_of[:, own] > 0) * guest[own]).flatten()
        near = torch.arange(int(asked.sum()) * WIDTH).view(-1, WIDTH).float()
        kept = (going, coming, near, asked, lent, (asked > 0) * guest, torch.ones(1))
        point = Exchange("dispatch", RANKS, False, place, HEIGHT)
        sent = HEIGHT * int(lent.sum()) + int(going.sum())
        x = torch.arange(sent * WIDTH).view(sent, WIDTH).float()
        parts = [point.cut_kept(kept, index, count) for index in range(count)]
        assert all(map(torch.equal, point.join_kept(parts), kept))
        assert torch.equal(point.join([point.cut(x, kept, index, count) for index in range(count)], parts), x)
        gradients = (*(torch.zeros_like(one) for one in kept[:2]), -near, *(torch.zeros_like(one) for one in kept[3:]))
        back = [point.cut_rest(gradients, kept, index, count) for index in range(count)]
        assert [len(one[2]) for one in back] == [int(part[3].sum()) for part in parts]
        assert all(map(torch.equal, point.join_rest(back, parts), gradients))
        comes[place] = [set(part[5].nonzero().flatten().tolist()) for part in parts]
        for index, part in enumerate(parts):  # who borrows in a part is lent to in that part
            homes = {(place - by) % RANKS for by in range(RANKS) if by // (RANKS // count) == index}
            assert {expert // LOCAL for expert in comes[place][index]} <= homes
            to = part[4].view(RANKS, LOCAL).sum(1).nonzero().flatten().tolist()
            assert {(rank - place) % RANKS // (RANKS // count) for rank in to} <= {index}
