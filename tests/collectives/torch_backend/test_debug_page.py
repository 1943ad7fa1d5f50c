"""Syntony's page in torch's debug server: what its ranks answer, and what becomes of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from syntony import Communicator, LocalBootstrap
from syntony.collectives.torch_backend.debug_page import records, told


def test_the_page_compares_the_records_of_all_ranks() -> None:
    def rank(bootstrap: LocalBootstrap) -> Communicator:
        group = Communicator.create(bootstrap, timeout=60, name="seen on the page")
        group.all_reduce(np.ones(4, np.float32))
        return group

    with ThreadPoolExecutor(2) as threads:
        groups = list(threads.map(rank, LocalBootstrap.group(2)))
    answer = records()
    for group in groups:
        group.close()
    page = told([(200, answer), (503, "ConnectionError: refused"), (200, "no JSON"), (200, '["AAAA"]')])
    first, second, third, *rest = page.splitlines()
    assert first == "rank 1 gave no record: its worker server says 503: ConnectionError: refused"
    assert second.startswith("rank 2 gave no record: ")
    assert third.startswith("rank 3 gave no record: the record of rank 3 is not a flight record of Syntony's")
    assert rest[0] == "no rank is behind"
    assert "all_reduce" in page
    assert "seen on the page" in page


def test_without_a_group_the_page_says_so() -> None:
    assert told([(200, "[]")]) == "no group of Syntony's has a record"


def test_the_page_stands_behind_torchs_own() -> None:
    pytest.importorskip("tabulate", reason="torch's debug server needs it")
    debug = pytest.importorskip("torch.distributed.debug._debug_handlers")
    if not hasattr(debug, "default_handlers"):
        pytest.skip("this torch's debug server takes no handlers")
    from syntony.collectives.torch_backend.debug_handlers import debug_handlers

    *others, ours = debug_handlers()
    assert len(others) == len(debug.default_handlers())
    assert [(link.path, link.label) for link in ours.nav_links()] == [("/syntony", "Syntony")]
    assert {route.path for route in ours.routes()} == {"/syntony"}
    assert ours.dump_filename() == "syntony"
