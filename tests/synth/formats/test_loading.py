"""Files in, proven Programs out: load, and the verbs verify and convert with their exit codes and sentences."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import syntony
from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.synth.checker import check_program
from syntony.synth.commands.files import COMMANDS
from syntony.synth.formats import schedule_file
from syntony.synth.formats.loading import InvalidError, load, verify
from syntony.synth.formats.program_file import from_dict, write_program
from syntony.synth.model.instructions import ProgramError
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule, Transfers
from syntony.synth.model.target import CONVERSION, MSCCL
from syntony.synth.symmetry.groups import fold
from tests.synth.formats.test_msccl_xml import PAIR
from tests.synth.programs import exchange, one_sided_gather, program, ring_all_reduce
from tests.synth.schedules import SCHEDULES, ring_all_gather
from tests.synth.unvalidated import unvalidated


def broken_schedule() -> Schedule:
    original = ring_all_gather(4)
    return replace(original, transfers=Transfers.of(original.transfers.rows()[1:]))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """One file of each kind, right and wrong."""
    paths = {
        name: tmp_path / name
        for name in ("schedule.json", "bad-schedule.json", "program.json", "bad-program.json", "pair.xml", "bad.xml")
    }
    schedule_file.write(ring_all_gather(4), paths["schedule.json"])
    schedule_file.write(broken_schedule(), paths["bad-schedule.json"])
    write_program(ring_all_reduce(4), paths["program.json"])
    write_program(ring_all_reduce(4, rounds_per_hop=False), paths["bad-program.json"])
    paths["pair.xml"].write_text(PAIR)
    paths["bad.xml"].write_text(PAIR.replace('hasdep="1"', 'hasdep="0"'))
    return paths


def test_load_proves_and_lowers(files: dict[str, Path]) -> None:
    assert syntony.load is load
    loaded = load(files["schedule.json"], ranks=4)
    assert (loaded.collective, loaded.ranks) == ("all_gather", 4)
    assert check_program(loaded)
    assert load(files["program.json"]) == ring_all_reduce(4)
    assert load(files["pair.xml"]).name == "pair"


@pytest.mark.parametrize("name", SCHEDULES)
def test_written_schedules_load(name: str, tmp_path: Path) -> None:
    for at, schedule in enumerate((SCHEDULES[name](), fold(SCHEDULES[name]()))):
        schedule_file.write(schedule, tmp_path / f"{at}.json")
    assert verify(tmp_path / "0.json").fault is None
    assert load(tmp_path / "1.json").collective == load(tmp_path / "0.json").collective


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bad-schedule.json", "step 1, transfer 4 (chunk 0, rank 1 -> rank 2): rank 1 does not hold chunk 0 by then"),
        ("bad-program.json", "yet the program does not say rounds_per_hop"),
        ("bad.xml", "it waits forever for step 0"),
    ],
)
def test_load_refuses_what_is_wrong(files: dict[str, Path], name: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        load(files[name])
    assert told in str(error.value)
    verdict = verify(files[name])
    assert not verdict.valid
    assert told in (verdict.fault or "")


@pytest.mark.parametrize(("name", "what"), [("schedule.json", "schedule"), ("program.json", "program")])
def test_wrong_number_of_ranks(files: dict[str, Path], name: str, what: str) -> None:
    with pytest.raises(UserError) as error:
        load(files[name], ranks=8)
    assert str(error.value) == f"{files[name]}: the {what} is for 4 ranks, the group has 8"


def test_targets_limit_what_loads(files: dict[str, Path], tmp_path: Path) -> None:
    assert load(files["program.json"], target=MSCCL).ranks == 4
    write_program(one_sided_gather(), tmp_path / "one-sided.json")
    assert load(tmp_path / "one-sided.json", target=CONVERSION).one_sided
    two_sided = load(tmp_path / "one-sided.json")
    assert not two_sided.one_sided
    assert check_program(two_sided)


def stamped(wrong: Program, path: Path, digest: int) -> None:
    """The file with the stamp of earlier days, which a reader believed where the hash was right."""
    write_program(wrong, path)
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"stamp": {"hash": f"{digest:#018x}", "checker": 1}}))


def test_a_stamp_is_not_believed(tmp_path: Path) -> None:
    """Each with the very stamp that made it load in earlier days."""
    lane: list[dict[str, Any]] = [{"op": "copy", "dst": ["output", 0], "src": ["input", 0]}]
    longer = [*lane, {"op": "recv", "dst": ["output", 0], "from": 1}]
    for number, wrong in enumerate(
        (
            ring_all_reduce(4, rounds_per_hop=False),
            program("all_reduce", [[0, 1]], [([0], [0], [], [lane])] * 2),  # nobody's sum
            program("all_reduce", [[0, 1]], [([0], [0], [], [longer]), ([0], [0], [], [lane])]),  # waits in vain
        )
    ):
        path = tmp_path / f"{number}.json"
        stamped(wrong, path, wrong.hash)
        with pytest.raises(InvalidError):
            load(path)
        assert not verify(path)


def test_a_stamp_on_a_right_program_does_no_harm(tmp_path: Path) -> None:
    stamped(exchange(3), tmp_path / "p.json", 1)
    assert load(tmp_path / "p.json") == exchange(3)


def test_a_stamp_on_what_the_core_refuses(tmp_path: Path) -> None:
    lane = [{"op": "copy", "dst": ["output", 0], "src": ["input", 0], "after": [[0, 0]]}]
    waits_for_itself = unvalidated("all_reduce", [[0, 1]], [([0], [0], [], [lane])])
    stamped(waits_for_itself, tmp_path / "p.json", 0)
    with pytest.raises(ProgramError, match=r"p.json: rank 0, lane 0, instruction 0 \(copy\): it waits for lane 0"):
        load(tmp_path / "p.json")
    verdict = verify(tmp_path / "p.json")
    assert not verdict
    assert "p.json: rank 0, lane 0" in (verdict.fault or "")


def edit_columns(document: dict[str, Any], rng: random.Random) -> str:
    """Removes, repeats or redirects one transfer of a schedule file."""
    columns = document["transfers"]
    row = rng.randrange(len(columns["src"]))
    change = rng.choice(("remove", "duplicate", "redirect"))
    if change == "remove":
        for column in columns.values():
            del column[row]
    elif change == "duplicate":
        for column in columns.values():
            column.append(column[row])
    else:
        ends = (columns["src"][row], columns["dst"][row])
        columns["dst"][row] = rng.choice([rank for rank in range(document["collective"]["ranks"]) if rank not in ends])
    return change


def test_edited_schedule_files_are_refused(tmp_path: Path) -> None:
    """The file that `syntony synth dgx1 all_gather --steps 2 --rounds 3 --chunks 2` writes, as a stranger edits it."""
    path = tmp_path / "f.json"
    schedule_file.write(fold(SCHEDULES["dgx1 all_gather"]()), path)
    text = path.read_text()
    for seed in range(60):
        document = json.loads(text)
        change = edit_columns(document, random.Random(seed))
        path.write_text(json.dumps(document))
        verdict = verify(path)
        assert not verdict.valid, f"seed {seed}: {change} went unnoticed"
        assert None not in (verdict.agent, verdict.step, verdict.chunk)


# --- the verbs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("schedule.json", 0),
        ("program.json", 0),
        ("pair.xml", 0),
        ("bad-schedule.json", 1),
        ("bad-program.json", 1),
        ("bad.xml", 1),
        ("none.json", 2),
    ],
)
def test_verify(files: dict[str, Path], name: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(files["pair.xml"].parent / name)
    assert main(["verify", path]) == code
    out, err = capsys.readouterr()
    if code == 2:
        assert out == ""
        assert err.count("\n") == 1
        return
    assert out.startswith(f"{path}: valid: all" if code == 0 else f"{path}: invalid: ")
    assert main(["verify", path, "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    assert found["valid"] == (code == 0)
    assert (found["fault"] is None) == (found["proven"] is not None) == (code == 0)


def test_verify_shows_a_deadlock(files: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(files["program.json"]), "--fifo-depth", "1"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "deadlock at FIFO depth 1 after 4 of 28 instructions" in lines[0]
    assert lines[1] == (
        "  rank 0 lane 0 [#!.....]                  1 (recv_reduce_send) waits for room in "
        "rank 0 -> rank 1 on channel 0, which holds 1 of 1"
    )
    assert lines[-1].endswith(
        "circle: rank 0 lane 0 -> rank 1 lane 0 -> rank 2 lane 0 -> rank 3 lane 0 -> rank 0 lane 0"
    )
    assert main(["verify", str(files["program.json"]), "--fifo-depth", "2"]) == 0


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": "other"}', '{"format": "syntony-program"}', "<algo", "\udcff"]
)
def test_unreadable(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert main(["verify", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"syntony: {path}:")
    assert err.count("\n") == 1


def test_convert(files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    xml, back = tmp_path / "out.xml", tmp_path / "back.json"
    assert main(["convert", str(files["schedule.json"]), "--to", "msccl-xml", "-o", str(xml)]) == 0
    assert main(["convert", str(xml), "--to", "json", "-o", str(back)]) == 0
    converted = from_dict(json.loads(back.read_text()), "back")
    assert capsys.readouterr().out.count("all_gather on 4 ranks") == 2
    assert load(back) == converted


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bad-schedule.json", "--to", "json", "-o", "x"], "rank 1 does not hold chunk 0 by then"),
        (["schedule.json", "--to", "mscclpp", "-o", "x"], "did you mean mscclpp-json"),
        (["schedule.json", "--to", "json", "-o", "none/x"], "there is no folder"),
    ],
)
def test_convert_refuses(
    files: dict[str, Path], arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files["schedule.json"].parent
    before = sorted(folder.iterdir())
    arguments = [str(folder / word) if word.endswith((".json", "x")) else word for word in arguments]
    try:
        code: object = main(["convert", *arguments])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert told in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_commands_have_what_help_needs() -> None:
    assert [command.name for command in COMMANDS] == [("verify",), ("convert",)]
    assert all(command.example.startswith(f"syntony {command.name[0]} ") for command in COMMANDS)


@pytest.mark.parametrize(
    "module",
    ["syntony.synth", "syntony.synth.formats.loading", "syntony.synth.checker", "syntony.synth.commands.files"],
)
def test_torch_is_not_imported(module: str) -> None:
    code = f"import sys, {module}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


@pytest.mark.parametrize("make", [lambda: exchange(4), lambda: ring_all_reduce(5)])
def test_convert_of_a_program_keeps_it(make: Callable[[], Any], tmp_path: Path) -> None:
    write_program(make(), tmp_path / "a.json")
    assert main(["convert", str(tmp_path / "a.json"), "--to", "json", "-o", str(tmp_path / "b.json")]) == 0
    assert load(tmp_path / "b.json") == make()
