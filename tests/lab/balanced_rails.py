"""One rank of a lab of three hosts with two network cards each; rank 0's second one is lost, and comes back.

    python -m tests.lab.balanced_rails SIZE CARD MENDING SEED

Nobody calls balance_rails(). Rank 0 prints after how many all_reduces their shares are unequal, and after how many more
they are the usual ones again, and whether all ranks have chosen the same for every one of them.
"""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.bootstrap.tcp_bootstrap import TcpBootstrap
from syntony.collectives.communicator import Communicator
from syntony.collectives.recorder.records import parse

BALANCED = "two_shot (unequal shares)"
AT_ONCE = 5
MOST = 400
"""all_reduces of a phase. A card that is up again is tried every 8 s."""


def main(size: int, card: str, mending: str, seed: int) -> None:
    with TcpBootstrap.from_environment() as exchange, Communicator.create(exchange, 120.0) as group:
        given = np.arange(size // 4, dtype=np.float32) % 251
        pause = random.Random(seed + group.rank)  # ranks are not equally far ahead

        def chosen() -> list[str]:
            """The algorithms of all large all_reduces so far."""
            operations = parse(group._core.record(), "own").operations
            return [
                one.algorithm
                for one in operations
                if one.collective == "all_reduce" and one.input_elements == given.size
            ]

        def later(sum_: NDArray[np.float32]) -> Any:
            time.sleep(pause.uniform(0, 0.02))
            return group.all_reduce(sum_, async_op=True)

        def until(balanced: bool) -> int:
            """Runs some at once, as training does, until the last one is, or is not. All ranks run as many."""
            for number in range(0, MOST, AT_ONCE):
                sums = [given.copy() for _ in range(AT_ONCE)]
                for work in [later(sum_) for sum_ in sums]:
                    work.wait()
                assert all(np.array_equal(sum_, given * group.size) for sum_ in sums), "a wrong sum"
                last = np.array([(chosen()[-1] == BALANCED) == balanced], np.int32)
                group.all_reduce(last, op="min")
                if last[0]:
                    return number + AT_ONCE
            raise AssertionError(f"balanced is not {balanced}: {chosen()}")

        until(balanced=False)
        if group.rank == 0:
            subprocess.run(["ip", "link", "set", "dev", card, "down"], check=True)
        lost = until(balanced=True)
        if group.rank == 0:
            subprocess.run(["ip", "-batch", mending], check=True)
        back = until(balanced=False)
        mine = np.frombuffer(hashlib.sha256(" ".join(chosen()).encode()).digest(), np.uint8)
        everybody = np.empty((group.size, mine.size), np.uint8)
        group.all_gather(mine, everybody)
        if group.rank == 0:
            print("balanced", lost, back, bool((everybody == mine).all()))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
