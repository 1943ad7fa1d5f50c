"""What torch 2.15 asks of a backend beyond collectives: groups that are told anew who is in them, and windows.

Skipped on older versions of torch, whose headers have neither.
"""

from __future__ import annotations

import pytest

from tests.collectives.running import HERE, launch

torch = pytest.importorskip("torch.distributed")

FOLDER = HERE / "torch_backend"


@pytest.mark.skipif(not hasattr(torch, "_reconfigure"), reason="torch before 2.15 has no reconfigure")
@pytest.mark.parametrize("backend", ["syntony", "gloo"])
def test_reconfigure(backend: str) -> None:
    environment = {"SYNTONY_REPLACE": "gloo"} if backend == "gloo" else {}
    done = launch(3, FOLDER / "torch_reconfigure.py", backend, **environment)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert len(done.stdout.split()) == 13


@pytest.mark.skipif(not hasattr(torch, "_new_window"), reason="torch before 2.15 has no windows")
def test_windows() -> None:
    done = launch(2, FOLDER / "torch_windows.py")
    assert "a_dead_peer_is_named" in done.stdout, done.stdout + done.stderr[-4000:]
