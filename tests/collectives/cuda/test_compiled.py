"""Compiling at run time, as far as a machine without a GPU goes: NVRTC where cupy is, one sentence where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from syntony import _core
from syntony.collectives.buffers import UsageError
from syntony.collectives.cuda import compiled
from syntony.collectives.cuda.compiled import Compiled, GpuError, machine_code
from syntony.collectives.cuda.source import generate
from syntony.synth.model.program import Program


@pytest.fixture
def ring() -> Program:
    return Program.from_core(_core.build("ring", "all_reduce", 2, 0, None))


def test_without_cupy_it_is_one_sentence(ring: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(GpuError, match=r"^generated kernels need cupy .*, which cannot be imported"):
        machine_code(generate(ring, "float32"), "sm_90")
    with pytest.raises(GpuError, match="generated kernels need cupy"):
        Compiled.of(ring, "float32").bind([{}, {}], [{}, {}])


def test_nvrtc_compiles_once(ring: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    try:
        cupy.cuda.nvrtc.getVersion()
    except RuntimeError as error:
        pytest.skip(f"there is no NVRTC on this machine: {compiled.first_line(error)}")
    monkeypatch.setenv("SYNTONY_CACHE", str(tmp_path / "cache"))
    source = generate(ring, "bfloat16")
    code = machine_code(source, "sm_90")
    assert code.startswith(b"\x7fELF")
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_bytes(b"what was kept")
    assert machine_code(source, "sm_90") == b"what was kept"
    assert machine_code(source, "sm_100") != b"what was kept"
    with pytest.raises(GpuError, match=r"NVRTC refuses the kernel .* for sm_1"):
        machine_code(source, "sm_1")


@pytest.mark.parametrize("given", [[{0: bytearray(4)}, {}], [{0: 3}, {}]])
def test_arrays_that_are_on_no_gpu(ring: Program, given: list[dict[int, object]]) -> None:
    pytest.importorskip("cupy", reason="cupy is not installed")
    with pytest.raises(UsageError, match=r"block 0 of rank 0's input is a .* that lies on no CUDA GPU"):
        Compiled.of(ring, "float32").bind(given, given)
