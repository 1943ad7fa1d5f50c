"""Parameter servers: workers push their gradients, servers sum them and send the result back.

    worker 0 ──┐ push        ┌──▶ worker 0      push is an incast: all workers into one server;
    worker 1 ──┼──▶ server ──┼──▶ worker 1      pull is an outcast.
    worker 2 ──┘             └──▶ worker 2

Each server holds a share of the parameters; the size is cut into pieces, and a server sends a piece back when every
worker's push of it has arrived, so pushes and pulls overlap. (Li et al., OSDI'14; Jiang et al., "BytePS", OSDI'20,
section 4.1, gives the shares of servers with and without a worker on the same machine.)
"""

from __future__ import annotations

import numpy as np

from syntony.synth.traffic.messages import Messages

PIECES = 16


def dedicated(members: int, size: float, servers: int) -> Messages:
    """The last `servers` members serve equal shares; all others work."""
    share = np.zeros(members)
    share[members - servers :] = 1 / servers
    return _pushed_and_pulled(members - servers, share, size)


def colocated(members: int, size: float) -> Messages:
    """Every member works, and also serves an equal share; its own share needs no network."""
    return _pushed_and_pulled(members, np.full(members, 1 / members), size)


def byteps(members: int, size: float, servers: int) -> Messages:
    """The last `servers` members only serve, the others work and serve: shares that keep all links equally busy.

    With n workers and k servers, a server that also works holds (n-k)/(n^2+kn-2k) of the size, the others
    2(n-1)/(n^2+kn-2k).
    """
    n, k = members - servers, servers
    share = np.full(members, (n - k) / (n * n + k * n - 2 * k))
    share[n:] = 2 * (n - 1) / (n * n + k * n - 2 * k)
    return _pushed_and_pulled(n, share, size)


def _pushed_and_pulled(workers: int, share: np.ndarray[tuple[int], np.dtype[np.float64]], size: float) -> Messages:
    """Pushes of every piece from every worker to every server with a share, and as many pulls back."""
    serving = np.flatnonzero(share > 0)
    # Rows by piece, then server, then worker.
    piece, server, worker = (index.ravel() for index in np.indices((PIECES, len(serving), workers)))
    count = len(piece)
    amount = size * share[serving[server]] / PIECES
    here = serving[server] == worker  # a worker's own share: nothing to send
    amount = np.where(here, 0.0, amount)
    # Between pushes and pulls, a message of the server to itself waits for all pushes of its piece.
    sums = count + np.arange(count // workers)
    sum_of = sums[np.arange(count) // workers]
    at = serving[server][::workers]
    pulls = count + len(sums) + np.arange(count)
    return Messages.make(
        len(share),
        np.r_[worker, at, serving[server]],
        np.r_[serving[server], at, worker],
        np.r_[amount, np.zeros(len(sums)), amount],
        (np.r_[sum_of, pulls], np.r_[np.arange(count), sum_of]),
    )
