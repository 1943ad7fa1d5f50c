"""What tests of ranks that meet share."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

SOON = 0.5  # seconds until somebody gives up, in tests where somebody must
HOST = "127.0.0.1"


@pytest.fixture
def port() -> int:
    with socket.create_server((HOST, 0)) as server:
        number: int = server.getsockname()[1]
        return number


def at_once(*jobs: Callable[[], Any]) -> list[Any]:
    """What each job returned or raised, all run in threads of their own."""

    def caught(job: Callable[[], Any]) -> Any:
        try:
            return job()
        except Exception as failure:
            return failure

    with ThreadPoolExecutor(len(jobs)) as threads:
        return list(threads.map(caught, jobs))
