"""As little room on fast links as the trees of a broadcast need.

Exact trees use whatever room they are given, also where nothing is to be gained, and links that are full for no reason
make messages wait for each other:

    DGX-H100 x 2, broadcast in 8 trees, as fast as 8 NICs     hops      simulated, 1 GiB
      NVLink has room for 9 of them                           5         1.36 of the bound
      as if it had room for 7                                 3         1.002

Links of the same bandwidth keep the same room, and the fastest ones give room up first, so what enters a switch still
fits what leaves it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from syntony.synth.engines.forest.fixed import Search
from syntony.synth.model.network import Network

Integers = NDArray[np.signedinteger]


def narrowed(network: Network, trees: Sequence[int], rooms: Sequence[int]) -> list[int]:
    """Rooms of the network's links in which trees[r] trees of every rank r still fit, if they fit in `rooms`."""
    search = Search(network, trees)
    room, bandwidth = np.asarray(rooms, np.int64), np.asarray([float(link) for link in search.bandwidths])
    for fast in np.unique(bandwidth)[::-1]:
        cut = partial(_at_most, room, bandwidth == fast)
        enough = partial(_enough, search, cut)
        room = cut(bisect_left(range(int(room.max())), True, key=enough))
    return list(map(int, room))


def _enough(search: Search, cut: Callable[[int], Integers], most: int) -> bool:
    return search.suffice(cut(most).tolist())


def _at_most(room: Integers, those: NDArray[np.bool_], most: int) -> Integers:
    return np.where(those, np.minimum(room, most), room)
