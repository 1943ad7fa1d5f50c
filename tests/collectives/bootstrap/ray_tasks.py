"""Starts launched_script.py as four tasks of a Ray that runs on this machine only."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import Path

import ray

from tests.collectives.bootstrap import launched_script


def rank(number: int, port: int, folder: str) -> None:
    os.environ.update(RANK=f"{number}", WORLD_SIZE="4", MASTER_ADDR="127.0.0.1", MASTER_PORT=f"{port}")
    launched_script.main(Path(folder))


def main(folder: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100_000_000)
    task = ray.remote(num_cpus=1, max_retries=0)(rank)
    for result in [task.remote(number, port, folder) for number in range(4)]:
        with suppress(ray.exceptions.WorkerCrashedError):  # each ends without a result
            ray.get(result, timeout=100)


if __name__ == "__main__":
    main(sys.argv[1])
