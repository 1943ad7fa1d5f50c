"""What test_launchers.py starts under a launcher: four ranks on two hosts by name; then rank 2 dies in a collective."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from syntony import CommunicationError, Communicator
from syntony.collectives.bootstrap.rendezvous import exchange_of_this_rank


def main(folder: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a launcher must not end survivors before they have said why
    exchange = exchange_of_this_rank(None, 60.0)
    assert exchange is not None, "no launcher was recognized"
    os.environ["SYNTONY_HOST"] = f"host{exchange.rank // 2}"
    group = Communicator.create(exchange, timeout=60.0)
    total = np.full(1000, group.rank + 1.0, np.float32)
    group.all_reduce(total)
    assert (total == 10).all()
    assert group.boxes == [[0, 1], [2, 3]]
    (folder / f"met {group.rank}").touch()
    group.barrier()
    (folder / f"past {group.rank}").touch()
    if group.rank == 2:  # its death must not fall into the others' barrier
        until = time.monotonic() + 30
        while len(list(folder.glob("past *"))) < group.size and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        group.all_reduce(total)
    except CommunicationError as error:
        (folder / f"told {group.rank}").write_text(str(error))
        os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
