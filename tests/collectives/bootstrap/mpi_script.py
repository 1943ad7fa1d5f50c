"""What test_mpi.py starts under mpiexec: every rank sums, gathers and exchanges, then rank 0 says so."""

from __future__ import annotations

import numpy as np

from syntony import Communicator, MpiBootstrap


def main() -> None:
    bootstrap = MpiBootstrap()
    for _ in range(2):  # groups one after another over one bootstrap
        with Communicator.create(bootstrap, timeout=60.0) as group:
            total = np.full(1000, group.rank + 1, np.float32)
            group.all_reduce(total)
            assert (total == sum(range(1, group.size + 1))).all()
            ranks = np.zeros(group.size, np.int64)
            group.all_gather(np.array([group.rank]), ranks)
            assert ranks.tolist() == list(range(group.size))
    if bootstrap.rank == 0:
        print(f"{bootstrap.size} ranks met by MPI")


if __name__ == "__main__":
    main()
