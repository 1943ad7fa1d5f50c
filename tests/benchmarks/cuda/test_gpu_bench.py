"""`syntony bench --device cuda` on a GPU: ranks as processes and threads, every result checked by the bench."""

from __future__ import annotations

import json

import pytest

from syntony.__main__ import main
from tests import forked
from tests.csrc.cuda.gpu import needs_gpu

pytestmark = needs_gpu


@pytest.mark.parametrize("ranks", [("-t", "4"), ("--ranks", "2")])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_rows_are_right(collective: str, ranks: tuple[str, str]) -> None:
    words = ["bench", collective, "--device", "cuda", *ranks, "-b", "64K", "-n", "3", "--algo", "auto,direct"]
    done = forked.run(main, [*words, "--json"], timeout=200)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["out_of_bounds"] == {"count": 0, "okay": "true"}
    assert len(document["results"]) == 1
