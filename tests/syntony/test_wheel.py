"""What an installation brings, and what it leaves alone: other people's names."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = ("collectives", "benchmarks", "synth", "csrc", "topologies", "trainer", "overlap", "lab", "base")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel of this tree; `wheel.cmake=false` leaves out what is compiled."""
    folder = tmp_path_factory.mktemp("wheel")
    words = f"-m pip wheel {ROOT} --no-deps --no-build-isolation --quiet -w {folder} -C wheel.cmake=false"
    built = subprocess.run([sys.executable, *words.split()], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("syntony-*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_one_name_at_the_top(files: set[str]) -> None:
    tops = {name.split("/")[0] for name in files}
    assert sorted(top.partition("-")[0] for top in tops) == ["syntony", "syntony"]
    assert sorted(top.rpartition(".")[2] for top in tops) == ["dist-info", "syntony"]


def test_sources_stay_behind(files: set[str]) -> None:
    """But for the one that the bench compiles against an installed oneCCL."""
    sources = [name for name in files if name.endswith((".cpp", ".hpp", ".cu", ".cuh", ".so"))]
    assert sources == ["syntony/benchmarks/mpi/oneccl.cpp"]


def test_what_is_not_python_comes_along(files: set[str]) -> None:
    package = ROOT / "src" / "syntony"
    kinds = ("py.typed", "*.pyi", "*.toml", "*.md")
    expected = {str(path.relative_to(ROOT / "src")) for kind in kinds for path in package.rglob(kind)}
    assert {"syntony/py.typed", "syntony/_core.pyi", "syntony/trainer/configs/tiny.toml"} <= expected
    assert {"syntony/topologies/FORMAT.md", "syntony/synth/formats/FORMAT.md"} <= expected
    assert expected <= files


def test_a_folder_with_packages_of_such_names_keeps_them(tmp_path: Path) -> None:
    """Also `import torch`, which loads our entry point."""
    pytest.importorskip("torch")
    for word in WORDS:
        (tmp_path / word).mkdir()
        (tmp_path / word / "__init__.py").write_text("whose = 'mine'\n")
    theirs = [f"import {word}; assert {word}.whose == 'mine', {word}" for word in WORDS]
    ours = "import syntony; syntony.Communicator; assert torch.distributed.Backend.SYNTONY == 'syntony'"
    for lines in (["import torch", *theirs, ours], [*theirs, "import torch", ours]):
        program = "\n".join(lines)
        ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, "")
