"""`syntony.over`: schedules as grouped messages on gloo's groups and on ours, with real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.running import HERE, launch

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed")

import syntony  # noqa: E402
from syntony.__main__ import main  # noqa: E402
from syntony.collectives.p2p.over import program_of, rounds  # noqa: E402
from syntony.synth.formats.schedule_file import write  # noqa: E402
from tests.collectives.p2p.interpreted import interpret  # noqa: E402

BUILT_IN = {
    "all_reduce": ("ring", "dbt", "two_shot"),
    "reduce_scatter": ("ring", "direct"),
    "all_gather": ("ring", "dbt"),
    "all_to_all": ("ring", "direct"),
}


def cases(folder: Path, ranks: int, network: str) -> Path:
    """Thirteen schedules, built in and synthesized, and what they mean; returns the folder."""
    found = []
    for collective, algorithms in BUILT_IN.items():
        made = syntony.synthesize(network, collective, engine="flow" if collective == "all_to_all" else "forest")
        path = folder / f"{collective}.json"
        write(made, path)
        for schedule, dtype, length in (
            *((algorithm, torch.float32, 193) for algorithm in algorithms),
            (str(path), torch.float32, 193),
            (str(path), torch.bfloat16, 64),
            (str(path), torch.float32, 0),
        ):
            each = length * (ranks if collective in ("reduce_scatter", "all_to_all") else 1)
            rng = torch.Generator().manual_seed(7 * length + ranks)
            inputs = [torch.randn(each, generator=rng).to(dtype) for _ in range(ranks)]
            outputs = interpret(program_of(collective, schedule, ranks), [tensor.clone() for tensor in inputs])
            case = {"collective": collective, "schedule": schedule, "inputs": inputs, "outputs": outputs}
            found.append(case)
    torch.save(found, folder / "cases.pt")
    return folder


@pytest.mark.parametrize("ranks", [4, pytest.param(8, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("backend", ["gloo", "syntony"])
def test_bit_for_bit(backend: str, ranks: int, tmp_path: Path) -> None:
    folder = cases(tmp_path, ranks, {4: "ring:4", 8: "dgx1"}[ranks])
    done = launch(ranks, HERE / "p2p" / "over_script.py", backend, folder)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert done.stdout.count("right") == ranks


def test_an_exported_schedule_needs_torch_alone(tmp_path: Path) -> None:
    """The module that `syntony export p2p` writes, on gloo, in processes that cannot import Syntony."""
    write(syntony.synthesize("ring:3", "all_to_all", engine="flow"), tmp_path / "exchange.json")
    module = tmp_path / "exchange.py"
    assert main(["export", "p2p", str(tmp_path / "exchange.json"), "-o", str(module)]) == 0
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, torch.distributed as dist\n"
        "sys.modules['syntony'] = None\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import exchange\n"
        "dist.init_process_group('gloo')\n"
        "rank, given, wanted = dist.get_rank(), torch.arange(6.0), torch.empty(6)\n"
        "exchange.run(given + 10 * rank, wanted)\n"
        "assert wanted.tolist() == [10 * r + 2 * rank + k for r in range(3) for k in range(2)], wanted\n"
        "dist.destroy_process_group()\n"
    )
    done = launch(3, script)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize(
    ("collective", "algorithm", "launches"),
    [("all_reduce", "two_shot", 2), ("all_reduce", "ring", 14), ("all_gather", "direct", 1), ("all_to_all", None, 1)],
)
def test_the_fewest_launches(collective: str, algorithm: str | None, launches: int) -> None:
    assert rounds(collective, algorithm, 8).launches == launches


def test_refusals() -> None:
    with pytest.raises(syntony.UserError, match="did you mean ring"):
        rounds("all_reduce", "rinq", 4)
    with pytest.raises(syntony.UserError, match="is for 8 ranks, the group has 4"):
        rounds("all_gather", syntony.synthesize("dgx1", "all_gather", engine="bfb"), 4)
    with pytest.raises(syntony.UserError, match="all_gather, not for all_to_all"):
        rounds("all_to_all", syntony.synthesize("dgx1", "all_gather", engine="bfb"), 8)
