"""No test believes what an earlier run has proven."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_earlier_proofs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
