"""SYNTONY_REPLACE=gloo: programs that ask for gloo get Syntony, and see gloo."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collectives.running import launch, run_python

pytest.importorskip("torch.distributed")

_CASES = """
import datetime, sys
import torch, torch.distributed as dist

if sys.argv[2] == "replace":
    import syntony
    syntony.replace("gloo")
    syntony.replace("gloo")  # changes nothing

def shown(group=None):
    group = group or dist.group.WORLD
    config = dist.distributed_c10d.get_backend_config(group)
    return dist.get_backend(group), config, group._get_backend(torch.device("cpu")).name()

dist.init_process_group(*sys.argv[1].split())
rank = dist.get_rank()
tensor = torch.arange(4.0) + rank
dist.all_reduce(tensor)
pair = dist.new_group([0, 1])
if rank < 2:
    dist.broadcast(tensor, 0, group=pair)
    if dist.get_backend() == "gloo":
        number = pair._get_sequence_number_for_group()
        dist.broadcast(tensor, 0, group=pair)
        assert pair._get_sequence_number_for_group() == number + 1
    pair_shown = shown(pair)
else:
    assert pair == dist.GroupMember.NON_GROUP_MEMBER
    pair_shown = None
named = dist.new_group(backend="syntony")
objects = [None] * 3
dist.all_gather_object(objects, {"rank": rank})
model = torch.nn.Linear(4, 4, bias=False)
torch.nn.init.ones_(model.weight)
parallel = torch.nn.parallel.DistributedDataParallel(model)
(parallel(torch.ones(2, 4) * rank).sum()).backward()
if dist.get_backend() == "gloo":
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
if rank == 0:
    print([tensor.tolist(), objects, model.weight.grad.tolist()])
    print([shown(), pair_shown, shown(named)])
dist.destroy_process_group()
"""


def _run(tmp_path: Path, backend: str, mode: str) -> list[str]:
    script = tmp_path / "script.py"
    script.write_text(_CASES)
    done = launch(3, script, backend, mode)
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("[")]


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo", "cpu:gloo,cuda:gloo", ""])
def test_results_and_names_are_those_of_gloo(tmp_path: Path, backend: str) -> None:
    results, names = _run(tmp_path, backend, "no")
    replaced, replaced_names = _run(tmp_path, backend, "replace")
    assert replaced == results
    assert "'gloo')" in names
    assert replaced_names == names.replace("'gloo')", "'syntony')")  # only who serves differs, not what torch says


def test_by_the_variable_and_by_the_verb(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())\n"
        "served = dist.group.WORLD._get_backend(torch.device('cpu')).name()\n"
        "tensor = torch.ones(3)\n"
        "dist.all_reduce(tensor)\n"
        "print(dist.get_backend(), served, tensor.tolist())\n"
        "dist.destroy_process_group()\n"
    )
    done = run_python("-m", "syntony", "run", "--", sys.executable, script, SYNTONY_DEBUG="INFO")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["gloo syntony [1.0, 1.0, 1.0]"]
    assert "INFO group '0' of 'gloo': served as 'syntony'" in done.stderr


def test_what_cannot_be_replaced_is_said_and_gloo_stays() -> None:
    code = (
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())\n"
        "import torch\n"
        "print(dist.group.WORLD._get_backend(torch.device('cpu')).name())\n"
    )
    done = run_python("-c", code, SYNTONY_REPLACE="nccl", PYTHONWARNINGS="default")
    assert (done.returncode, done.stdout) == (0, "gloo\n"), done.stderr[-3000:]
    assert done.stderr.count("Syntony can replace gloo, not 'nccl'") == 1


def test_another_torch_is_refused_in_a_sentence() -> None:
    code = (
        "import torch.distributed.distributed_c10d as c10d, syntony\n"
        "c10d._new_process_group_helper = lambda size, rank: None\n"
        "try:\n"
        "    syntony.replace('gloo')\n"
        "except RuntimeError as error:\n"
        "    print(error)\n"
    )
    done = run_python("-c", code)
    assert "does not know how torch" in done.stdout, done.stderr[-3000:]
    assert 'name the backend "syntony" instead' in done.stdout


def test_a_verb_without_a_command() -> None:
    for words, sentence in (((), "needs a command behind --"), (("--", "no-such-thing"), "there is no command")):
        done = run_python("-m", "syntony", "run", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert sentence in done.stderr
