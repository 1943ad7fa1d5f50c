"""Unmodified training scripts give the same losses on the backend as on gloo."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from tests.collectives.running import HERE, launch, run_python, torchrun

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed")

SCRIPTS = sorted(path.stem for path in (HERE / "torch_backend" / "scripts").glob("*.py"))


def losses() -> dict[str, dict[str, list[float]]]:
    """What every script prints on each backend: backend, script, numbers."""
    results: dict[str, dict[str, list[float]]] = {}
    for backend in ("gloo", "syntony"):
        done = launch(3, HERE / "torch_backend" / "scripts", backend)
        assert done.returncode == 0, f"{backend}:\n{done.stdout}\n{done.stderr[-3000:]}"
        results[backend] = {}
        name = ""
        for line in done.stdout.splitlines():
            if line.startswith("== "):
                name = line.removeprefix("== ")
            elif line.startswith("["):
                results[backend][name] = json.loads(line)
    return results


def test_equal_losses() -> None:
    """All scripts in one test, as all run in the same processes."""
    found = losses()
    assert found["syntony"].keys() == found["gloo"].keys() == set(SCRIPTS)
    for script in SCRIPTS:
        assert found["syntony"][script] == pytest.approx(found["gloo"][script], rel=1e-5), script
        assert found["gloo"][script] or script == "objects", script


@pytest.mark.parametrize("ranks", [2, 4])
def test_hooks_whose_callbacks_wait(ranks: int) -> None:
    """PowerSGD's callbacks sum and wait for the sum: with one thread for all callbacks, nobody would come back."""
    printed = []
    for backend in ("gloo", "syntony"):
        done = launch(ranks, HERE / "torch_backend" / "scripts" / "ddp_hooks.py", backend)
        told = f"{backend}:\n{done.stdout}\n{done.stderr[-3000:]}"
        assert done.returncode == 0, told
        printed.append(json.loads(done.stdout.splitlines()[0]))
    assert printed[1] == pytest.approx(printed[0], rel=1e-5)


def test_torchrun_without_an_import(tmp_path: Path) -> None:
    """As a user starts it: torchrun, a script that names the backend, nothing imported but torch."""
    if not any(entry.name == "syntony" for entry in metadata.entry_points(group="torch.backends")):
        pytest.skip("syntony is not installed (make build), so torch cannot find it by itself")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "assert 'syntony.collectives.torch_backend.backend' not in sys.modules and 'syntony._core' not in sys.modules\n"
        "dist.init_process_group('syntony')\n"
        "tensor = torch.ones(3)\n"
        "dist.all_reduce(tensor)\n"
        "assert tensor.tolist() == [2.0] * 3\n"
        "dist.destroy_process_group()\n"
        "print('done')\n"
    )
    done = torchrun(2, script, fresh=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("done") == 2


def test_importing_torch_loads_nothing_of_ours() -> None:
    done = run_python(
        "-c",
        "import sys, time, torch\n"
        "ours = [m for m in sys.modules if m.partition('.')[0] in ('csrc', 'synth', 'topologies')]\n"
        "assert not ours, ours\n"
        "from syntony.collectives.torch_backend import autoload\n"
        "autoload.register()\n"  # a second time changes nothing
        "assert torch.distributed.Backend.default_device_backend_map['cpu'] == 'gloo'\n",
    )
    assert done.returncode == 0, done.stderr


def test_torch_s_own_flight_recorder_hears_of_ends_and_of_failures(tmp_path: Path) -> None:
    if not hasattr(torch.distributed.ProcessGroup, "supports_abort_hooks"):
        pytest.skip(f"torch {torch.__version__} has no hooks on completions; they came with 2.15")
    script = HERE / "torch_backend" / "torch_hooks.py"
    done = launch(3, script, TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "rank_"))
    assert done.returncode == 0, done.stderr[-3000:]
    lines = sorted(done.stdout.splitlines(), key=len)
    names = ["all_reduce", "all_reduce", "all_gather", "barrier"]
    assert [json.loads(line) for line in lines[2:]] == [[[f"syntony:{name}", "completed", True] for name in names]] * 3
    assert [json.loads(line) for line in lines[:2]] == [["syntony:all_reduce", "scheduled", False]] * 2
    assert {path.name for path in tmp_path.glob("rank_*")} == {"rank_0", "rank_2"}
