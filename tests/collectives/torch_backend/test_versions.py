"""Which torch is served: versions named everywhere alike, others refused in a sentence, the way in that each takes."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from syntony.collectives.torch_backend import autoload, extension  # noqa: E402  # only where there is torch

ROOT = Path(__file__).parents[3]
FIRST, AFTER = extension.FIRST, (extension.LAST[0], extension.LAST[1] + 1)


def test_the_versions_are_named_alike_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    first, after = ("{}.{}".format(*version) for version in (FIRST, AFTER))
    assert project["optional-dependencies"]["torch"] == [f"torch>={first},<{after}"]
    build = (ROOT / "CMakeLists.txt").read_text()
    assert f"torch_version VERSION_LESS {first} OR torch_version VERSION_GREATER_EQUAL {after}" in build
    known = "{}.{} to {}.{}".format(*FIRST, *extension.LAST)
    for page in ("docs/torch_backend.md", "src/syntony/collectives/torch_backend/replace.py", "CMakeLists.txt"):
        assert known in (ROOT / page).read_text(), f"{page} does not say {known}"


@pytest.mark.parametrize("version", ["2.10.0", f"{AFTER[0]}.{AFTER[1]}.0+cu132", "3.0.0a0+git1234"])
def test_unknown_versions_are_refused_with_what_mends_it(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(ImportError, match=rf"knows torch .* this is torch {re.escape(version)}; .*'torch>="):
        extension.load()


def test_an_extension_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("syntony._torch")
    other.TORCH_VERSION = "2.11.0" if not torch.__version__.startswith("2.11.") else "2.12.0"  # type: ignore[attr-defined]
    import syntony

    monkeypatch.setitem(sys.modules, "syntony._torch", other)
    monkeypatch.setattr(syntony, "_torch", other, raising=False)
    with pytest.raises(ImportError, match=r"was built for torch 2\.1\d\.0, and this is .*; build it for this one"):
        extension.load()


def test_an_extension_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import syntony

    monkeypatch.setitem(sys.modules, "syntony._torch", None)  # an import of it then fails
    monkeypatch.delattr(syntony, "_torch", raising=False)
    with pytest.raises(ImportError, match=r"missing or was built for another torch.*pip install --force-reinstall"):
        extension.load()


@pytest.mark.parametrize("by_name", [False, True])
def test_a_torch_that_looks_backends_up_by_name_is_left_alone(monkeypatch: pytest.MonkeyPatch, by_name: bool) -> None:
    calls: list[str] = []
    backend = SimpleNamespace(register_backend=lambda name, *_, **__: calls.append(name))
    if by_name:
        backend._ensure_backend_registered = lambda name: None
    monkeypatch.setitem(sys.modules, "torch.distributed", SimpleNamespace(Backend=backend))
    monkeypatch.delenv("SYNTONY_REPLACE", raising=False)
    autoload.register()
    assert calls == ([] if by_name else ["syntony"])
    autoload.register_backend()  # what the other entry point runs when somebody asks for the name
    assert calls[-1:] == ["syntony"]
