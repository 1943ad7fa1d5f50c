"""The names at the top: lazy, typed, and each does what its verb on the command line does."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import syntony
from syntony.__main__ import main
from syntony.synth.formats.schedule_file import write
from syntony.synth.model.schedule import Transfers

_RING = Path(syntony.__file__).with_name("synth") / "dsl" / "examples" / "ring.py"


def test_importing_the_package_loads_no_room() -> None:
    probe = (
        "import sys; import syntony; dir(syntony);"
        "print(*sorted(name for name in sys.modules if name.split('.')[0] in ('syntony', 'numpy', 'torch')));"
        "syntony.topology('ring:4'); syntony.UserError; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    # The page maker is handed down to base at once: what notebooks show needs no name of ours to have been used before.
    assert (done.stdout, done.stderr) == ("syntony syntony.base syntony.base.notebook\nFalse\n", "")


def test_the_names_are_those_that_type_checkers_see() -> None:
    tree = ast.parse(Path(syntony.__file__).read_text())
    typed = {
        alias.asname or alias.name: (node.module, alias.name)
        for guard in tree.body
        if isinstance(guard, ast.If)
        for node in guard.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert dir(syntony) == syntony.__all__ == sorted(syntony.__all__)
    assert {*typed, "__version__"} == set(syntony.__all__)
    for name, (module, original) in typed.items():
        if name in ("shrink_group", "debug_handlers"):
            pytest.importorskip("torch.distributed.debug._frontend")
        assert getattr(syntony, name) is getattr(import_module(module or ""), original), name
        assert getattr(syntony, name).__doc__, name
    with pytest.raises(AttributeError, match="module 'syntony' has no attribute 'synthesise'"):
        _ = getattr(syntony, "synthesise")  # noqa: B009  mypy knows that there is none
    assert syntony.__version__[0].isdigit()


def test_a_schedule_is_found_proven_and_simulated_from_names_or_objects(tmp_path: Path) -> None:
    ring = syntony.topology("ring:4")
    named = syntony.synthesize("ring:4", "all_gather", engine="sccl", chunks=2, steps=3, rounds=3, size="64K")
    made = syntony.synthesize(
        ring, syntony.Collective.make("all_gather", 4, chunks_per_block=2), engine="sccl", steps=3, rounds=3, size=65536
    )
    assert isinstance(named, syntony.Schedule)
    assert named == made
    assert named.steps == 3
    assert syntony.verify(named)
    path = tmp_path / "ag.json"
    words = "synth ring:4 all_gather --engine sccl --chunks 2 --steps 3 --rounds 3 --size 64K -o"
    assert main([*words.split(), str(path)]) == 0
    assert syntony.verify(path)
    assert syntony.verify(str(path))
    assert syntony.simulate(path, "1M").seconds == syntony.simulate(named, 1 << 20).seconds > 0
    assert syntony.simulate(named, "1M", every_message=True).utilization(4).shape == (len(ring.links), 4)


def test_members_and_root_are_taken() -> None:
    schedule = syntony.synthesize("ring:6", "broadcast", engine="greedy", root=1, members=range(3))
    assert (schedule.collective.root, schedule.collective.members) == (1, (0, 1, 2))


def test_a_program_is_loaded_proven_and_simulated(tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    assert main(["compile", str(_RING), "-o", str(path)]) == 0
    program = syntony.load(path)
    assert isinstance(program, syntony.Program)
    assert syntony.load(path, program.ranks) == program
    assert syntony.verify(program)
    topology = syntony.topology(f"ring:{program.ranks}")
    ours = syntony.simulate(program, "1M", topology=topology)
    assert ours.seconds == syntony.simulate(path, "1M", topology=topology.name).seconds > 0


def test_the_bound_is_what_the_command_tells(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "dgx1", "all_gather", "--members", "0-3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = syntony.bound("dgx1", "all_gather", members=(0, 1, 2, 3)).to_dict()
    assert found == {key: told[key] for key in found}


def test_an_invalid_schedule_is_refused(tmp_path: Path) -> None:
    schedule = syntony.synthesize("ring:4", "all_gather", engine="greedy", size="64K")
    less = replace(schedule, transfers=Transfers.of(schedule.transfers.rows()[:-1]))
    path = _written(less, tmp_path / "less.json")
    assert not syntony.verify(less)
    verdict = syntony.verify(path)
    assert not verdict
    assert verdict.fault
    with pytest.raises(syntony.UserError, match=r"less\.json"):
        syntony.load(path)


def _written(schedule: syntony.Schedule, path: Path) -> Path:
    write(schedule, path)
    return path


def test_mistakes_are_told_in_a_sentence(tmp_path: Path) -> None:
    collective = syntony.Collective.make("all_gather", 4)
    path = tmp_path / "none.json"
    schedule = syntony.synthesize("ring:4", collective, engine="greedy")
    program = syntony.load(_written(schedule, tmp_path / "ag.json"))
    for work, sentence in (
        (lambda: syntony.topology("rign:4"), "did you mean ring"),
        (lambda: syntony.bound("ring:4", "gather_all"), "no collective 'gather_all'"),
        (lambda: syntony.bound("ring:4", "all_gather", members=(3, 4)), "has only ranks 0..3"),
        (lambda: syntony.synthesize("ring:4", collective, engine="gredy"), "did you mean greedy"),
        (lambda: syntony.synthesize("ring:4", collective, size="big"), "size: 'big' is not a size"),
        (lambda: syntony.synthesize("ring:4", collective, size=0), "size: '0' is not a size"),
        (lambda: syntony.synthesize("ring:4", collective, chunks=2), "a Collective has its own chunks"),
        (lambda: syntony.synthesize("ring:4", "all_to_all", chunks=3), "3 chunks: all_to_all needs a multiple of 4"),
        (lambda: syntony.load(path), "cannot be read"),
        (lambda: syntony.verify(path), "cannot be read"),
        (lambda: syntony.load(tmp_path / "ag.json", 5), "is for 4 ranks, the group has 5"),
        (lambda: syntony.simulate(schedule, "1M", topology="ring:4"), "a schedule carries its topology"),
        (lambda: syntony.simulate(program, "1M"), "a program names no links"),
        (lambda: syntony.simulate(program, "1M", topology="ring:5"), "is for 4 ranks, but ring:5 has 5"),
    ):
        with pytest.raises(syntony.UserError, match=sentence) as refused:
            work()
        assert "\n" not in str(refused.value)


def test_a_communicator_from_the_top() -> None:
    with syntony.Communicator.create(syntony.LocalBootstrap.group(1)[0]) as group:
        array = syntony.empty(4, np.float32)
        array[:] = 2
        group.all_reduce(array)
        assert array.tolist() == [2.0] * 4
        assert "syntony" in syntony.counters()
    with pytest.raises(syntony.CommunicationError):
        group.all_reduce(array)
