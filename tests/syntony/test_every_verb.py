"""What holds for every verb, also for one that is added tomorrow: help, files, --json, guesses, widths.

The table of commands is walked; nothing here names a verb but CHEAP, the command lines that are run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from syntony.__main__ import main
from syntony.base.command import Command
from syntony.base.outputs import Output, outputs_of
from syntony.commands import ROOMS, all_commands, find
from syntony.parser import parser_of

WIDTH = 80
ALL = all_commands()
EVERY = pytest.mark.parametrize("command", ALL, ids=lambda command: "-".join(command.name))
OUTPUTS = [
    pytest.param(command, action, id=f"{'-'.join(command.name)}-{action.dest}")
    for command in ALL
    for action in outputs_of(parser_of(command))
]
WRITING = re.compile(r"\b(write|written|draw|drawn|copy)\b")
_GPT = "--model thin --layout dp=2"

CHEAP = {
    "topo list": "topo list",
    "topo aggregators": "topo aggregators",
    "topo show": "topo show dgx-a100:2",
    "topo draw": "topo draw ring:3 -o drawn.svg",
    "topo detect": "topo detect",
    "topo convert": "topo convert ring:3 converted.json",
    "topo probe": "topo probe --ranks 2 --largest 64K",
    "bound": "bound dgx1 all_reduce",
    "synth": "synth ring:4 all_gather --engine greedy --explain -o s.json",
    "portfolio": "portfolio ring:3 all_gather --to 2K --timeout 5 -o p.json",
    "compile": "compile ring --ranks 4 -o ring.json",
    "repair": "repair s.json --slowed 0-1@50% -o repaired.json",
    "verify": "verify s.json",
    "simulate": "simulate s.json --size 1M --utilization --trace t.json",
    "compare": "compare ring s.json --sizes 1K,1M",
    "congestion": "congestion clos:leaves=2,hosts=6,spines=2 --senders 3 --seconds 0.001",
    "traffic": "traffic example --heat-map heat.svg",
    "place": "place dgx-a100:2 --axes dp8xtp2 --size 1M",
    "convert": "convert s.json --to msccl-xml -o s.xml",
    "bench": "bench all_reduce broadcast -b 8 -n 2 --ranks 2 --csv b.csv -J b.json",
    "tune": "tune --ranks 2 --collectives all_reduce --sizes 8,64,1K --repeat 1",
    "preflight": "preflight --ranks 2 --memory 1M --largest 64K",
    "overlap list": "overlap list",
    "overlap degrees": "overlap degrees --model gpt:hidden=64,blocks=2 --ranks 2",
    "overlap swarm": "overlap swarm --model thin --stages 2:1,1 --microbatches 2",
    "overlap reshard": "overlap reshard --model thin --old dp=8,zero=3 --new dp=6,zero=3 --on dgx-a100",
    "overlap layout": "overlap layout --model gpt2 --ranks 2 --machine a100 --sequences 4 --where pp=1 --timeout 3",
    "overlap plan": f"overlap plan {_GPT} -o plan.json",
    "overlap simulate": f"overlap simulate {_GPT}",
    "overlap compare": f"overlap compare {_GPT} --policies fifo,ddp",
    "overlap explain": f"overlap explain {_GPT}",
    "overlap search": f"overlap search {_GPT} --seconds 1",
    "overlap trace": f"overlap trace {_GPT} -o step.json",
    "overlap traffic": f"overlap traffic {_GPT}",
    "view": "view s.json -o s.html",
    "export nccl-graph": "export nccl-graph dgx1 --timeout 5 -o channels.xml",
    "export p2p": "export p2p s.json -o p2p.py",
    "export mscclpp": "export mscclpp s.json@64K-1M --ranks-per-node 4 -o plans",
    "advise": "advise dgx1",
    "examples": "examples",
    "completion": "completion bash",
    "man": "man",
}
"""By command, a line that runs in a second or two where there is a schedule, s.json."""
SLOW = ("portfolio", "export nccl-graph", "advise", "overlap search", "topo probe", "preflight", "place")
RUN = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.sweep if name in SLOW else ()) for name in CHEAP]
)
ELSEWHERE = {
    "lab": "needs root",
    "lab list": "needs iproute2",
    "lab clean": "needs iproute2",
    "run": "becomes another program",
    "train": "tests/trainer",
    "overlap run": "tests/overlap/run/test_run.py",
    "trace": "tests/collectives/recorder/test_recorder.py",
    "export nccl-tuner": "needs measured times",
    "export rccl-tuner": "needs measured times",
    "demo": "takes a quarter of a minute",
}
WIDER = {"bench": "nccl-tests' table", "completion": "a shell's", "man": "troff's"}
"""Whose output is not for people's eyes, or is another program's format."""


def named(command: Command) -> str:
    return " ".join(command.name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a schedule in it, s.json."""
    found = tmp_path_factory.mktemp("verbs")
    assert main(["synth", "ring:4", "all_gather", "--engine", "greedy", "-o", str(found / "s.json")]) == 0
    return found


def test_every_verb_is_run_here_or_elsewhere() -> None:
    assert {named(command) for command in ALL} <= set(CHEAP) | set(ELSEWHERE), "add a cheap command line to CHEAP"


# ---- help -----------------------------------------------------------------------------------------------------------


@EVERY
def test_help_fits_the_terminal_and_breaks_no_word(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    narrow = parser_of(command).format_help()
    for line in narrow.splitlines():
        assert len(line) <= WIDTH, line
    monkeypatch.setenv("COLUMNS", "100")
    wide = parser_of(command).format_help()
    words = [set(re.sub(r"[\\\[\]]", " ", text).split()) for text in (narrow, wide)]
    assert words[0] == words[1]


def test_the_list_of_commands_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    for words in ([], ["--help"], ["help"], ["topo", "--help"], ["help", "topo"], ["help", "overlap"]):
        assert main(words) == 0
        assert all(len(line) <= WIDTH for line in capsys.readouterr().out.splitlines())


@EVERY
def test_help_before_and_after_the_name_is_the_same(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", *command.name]) == 0
    before = capsys.readouterr().out
    with pytest.raises(SystemExit) as left:
        main([*command.name, "--help"])
    assert left.value.code == 0
    assert capsys.readouterr().out == before


# ---- files that are written -----------------------------------------------------------------------------------------


@EVERY
def test_what_writes_a_file_says_so_to_the_parser(command: Command) -> None:
    """An option whose help speaks of writing is an Output; so it is checked before the work."""
    for action in parser_of(command)._actions:
        names_a_file = isinstance(action.metavar, str) and re.match(r"F(\.|ILE|OLDER|$)|OUT|NEW", action.metavar)
        if names_a_file and WRITING.search(action.help or ""):
            assert isinstance(action, Output) or action.dest == "file", f"{action.dest}: use add_output"


def attempt(
    command: Command,
    action: Output,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:
    """What the command says when told to write there, before any work: rc 2, and nothing on stdout."""
    line = CHEAP.get(named(command)) or command.example.removeprefix("syntony ")
    words = line.split(" -- ")[0].split()
    found, rest = find(words)
    assert found.name == command.name
    parser = parser_of(command)
    rest = [word for word in rest if word != "--force"]
    for other in outputs_of(parser):
        for flag in other.option_strings:
            if flag in rest:
                del rest[rest.index(flag) : rest.index(flag) + 2]
    if action.option_strings:
        rest += [action.option_strings[-1], str(path)]
    else:
        rest[-1] = str(path)
    for other in outputs_of(parser):
        if other.required and other.dest != action.dest and other.option_strings:
            rest += [other.option_strings[-1], "/dev/null"]

    def worked(_: argparse.Namespace) -> int:
        raise AssertionError("the work began")

    monkeypatch.setattr("syntony.__main__.find", lambda _: (_with(command, worked), rest))
    assert main([*command.name, *rest]) == 2, capsys.readouterr()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def _with(command: Command, run: object) -> Command:
    return Command(command.name, command.summary, command.example, command.configure, run, command.passes_on)  # type: ignore[arg-type]


def name_for(action: Output) -> str:
    return f"out{action.endings[0] if action.endings else '.json'}"


@pytest.mark.parametrize(("command", "action"), OUTPUTS)
def test_outputs_are_refused_before_the_work(
    command: Command,
    action: Output,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A missing folder, one that takes no files, an existing file, a full disk: told, with nothing left or lost."""
    monkeypatch.chdir(tmp_path)
    name = name_for(action)
    if action.folder:
        (tmp_path / "file").write_text("kept")
        assert "there is no folder" in attempt(command, action, tmp_path / "none" / "x", monkeypatch, capsys)
        assert "it is a file" in attempt(command, action, tmp_path / "file", monkeypatch, capsys)
        assert "cannot be written" in attempt(command, action, Path("/proc") / "x", monkeypatch, capsys)
        return
    assert "there is no folder" in attempt(command, action, tmp_path / "none" / name, monkeypatch, capsys)
    assert "cannot be written" in attempt(command, action, Path("/proc") / name, monkeypatch, capsys)
    assert "it is a folder" in attempt(command, action, tmp_path, monkeypatch, capsys) or action.endings
    (tmp_path / name).write_text("kept")
    assert "it exists; --force replaces it" in attempt(command, action, tmp_path / name, monkeypatch, capsys)
    assert (tmp_path / name).read_text() == "kept"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        full = attempt(command, action, tmp_path / f"full-{name}", monkeypatch, capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "cannot be written: File too large" in full
    assert [path.name for path in tmp_path.iterdir()] == [name]


# What --output wrote before, and would write beside it: told before the work, too.
@pytest.mark.parametrize(
    ("line", "there"),
    [
        ("portfolio ring:4 all_gather -o p.json", "p.3.json"),
        ("synth ring:4 all_gather --pareto -o p.json", "p.1-2-3.json"),
    ],
)
def test_files_beside_an_output_are_refused_before_the_work(
    line: str, there: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def worked(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("syntony.base.progress.progress", worked)
    (tmp_path / there).write_text("kept")
    (tmp_path / "p.note.json").write_text("kept")  # none of theirs
    assert main(line.split()) == 2
    assert f"{there}: it exists; --force replaces what is there" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {there: "kept", "p.note.json": "kept"}


WRITERS = [
    name for name in CHEAP if any(action.option_strings for action in outputs_of(parser_of(find(name.split())[0])))
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.sweep if name in SLOW else ()) for name in WRITERS]
)
def test_a_disk_that_fills_during_the_work(
    name: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """/dev/full takes a file's opening, but no byte: the disk is full once the work is done."""
    shutil.copy(folder / "s.json", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command, words = find(CHEAP[name].split())
    action = next(action for action in outputs_of(parser_of(command)) if action.option_strings)
    if action.folder:
        pytest.skip("it fills a folder")
    if name == "examples":
        words = ["ring"]
    for flag in (flag for output in outputs_of(parser_of(command)) for flag in output.option_strings):
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    before = {path.name for path in tmp_path.iterdir()} | {"cache"}
    assert main([*command.name, *words, action.option_strings[-1], "/dev/full"]) == 2
    _, err = capfd.readouterr()
    assert "/dev/full" in err
    assert "No space left on device" in err
    assert "Traceback" not in err
    named = {word for word in words if (tmp_path / word).exists()}
    assert {path.name for path in tmp_path.iterdir()} <= before | named


@pytest.mark.parametrize("command", [command for command in ALL if any(True for _ in outputs_of(parser_of(command)))],
                         ids=lambda command: "-".join(command.name))  # fmt: skip
def test_force_is_there_where_files_are_written(command: Command) -> None:
    assert "--force" in parser_of(command)._option_string_actions


# ---- run ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


@pytest.mark.usefixtures("_there")
@RUN
def test_output_fits_the_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On a terminal of 80 columns no line is wider; a single long word (a path) may be."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    line = CHEAP[name]
    code = main([*line.split(), *(["--force"] if _writes(name) else [])])
    out, err = capfd.readouterr()
    assert code == 0, err
    for shown in out.splitlines() if name not in WIDER else []:
        assert len(shown) <= WIDTH or len(shown.split()) == 1, shown
    for path in re.findall(r" -o (\S+)| --(?:trace|heat-map|csv) (\S+)", line) if name not in WIDER else []:
        assert f"wrote {path[0] or path[1]}" in out


def _writes(name: str) -> bool:
    return "--force" in parser_of(find(name.split())[0])._option_string_actions


@pytest.mark.usefixtures("_there")
@RUN
def test_json_is_one_object_on_one_line(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    line = CHEAP[name]
    assert main([*line.split(), "--json", *(["--force"] if _writes(name) else [])]) == 0
    out, _ = capfd.readouterr()
    assert out.count("\n") == 1, out[:300]
    told = json.loads(out)
    assert next(iter(told)) == "command"
    assert told["command"] == name
    assert "error" not in told


@EVERY
def test_json_tells_mistakes_in_the_same_shape(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.name, "--json", "--no-such-option"]) == 2
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert told == {"command": named(command), "error": err.removeprefix("syntony: ").rstrip("\n"), "code": 2}


# ---- guesses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ROOMS)
def test_every_verb_is_guessed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"{verb}x"]) == 2
    assert f"did you mean {verb}?" in capsys.readouterr().err


@EVERY
def test_every_option_is_guessed(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    parser = parser_of(command)
    needed = ["x" for action in parser._actions if not action.option_strings and action.nargs not in ("?", "*")]
    if any(action.choices for action in parser._actions if not action.option_strings):
        needed = [
            next(iter(map(str, action.choices or "x"))) for action in parser._actions if not action.option_strings
        ]
    for action in parser._actions:
        if action.required and action.option_strings:
            needed += [action.option_strings[-1], "x"]
    for option in parser._option_string_actions:
        if not option.startswith("--") or len(option) < 6 or option == "--help":
            continue
        misspelt = option[:-2] + option[-1] + option[-2]
        if misspelt in parser._option_string_actions or misspelt == option:
            continue
        assert main([*command.name, *needed, misspelt]) == 2
        assert "did you mean --" in capsys.readouterr().err, misspelt


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("convert f.json --to xml -o o.xml", "did you mean msccl-xml?"),
        ("bench allreduce", "did you mean all_reduce?"),
        ("bench all_reduce --algo rign", "did you mean ring?"),
        ("bench all_reduce --dtype half", "did you mean --datatype?"),
        ("bound ring:4 allgather", "did you mean all_gather?"),
        ("simulate builder:rign:all_reduce --topology ring:4", "did you mean ring?"),
        ("synth ring:4 all_gather --engine forrest", "did you mean forest?"),
        ("topo list tours", "did you mean torus?"),
        ("overlap simulate --model thin --machine a1000", "did you mean a100?"),
        ("tune --collectives all_redcue", "did you mean all_reduce?"),
        ("train tinny", "did you mean tiny?"),
        ("compile rign", "did you mean ring?"),
        ("examples rign", "did you mean ring?"),
        ("topo convert ring:3 r.json --from nvidia", "did you mean nvidia-smi?"),
    ],
)
def test_names_are_guessed(
    line: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err


# ---- odds and ends --------------------------------------------------------------------------------------------------


def command_line(*words: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "syntony", *words], cwd=cwd, env={**os.environ, **environment},
                          capture_output=True, text=True, timeout=60, check=False)  # fmt: skip


def test_a_wrong_algorithm_in_the_environment_is_a_mistake(tmp_path: Path) -> None:
    ended = command_line("bench", "all_reduce", "-b", "8", cwd=tmp_path, SYNTONY_ALGO="all_reduce:rign")
    assert ended.returncode == 2
    assert "did you mean ring?" in ended.stderr


def test_names_that_the_terminal_cannot_show_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(json.dumps({
        "format": "syntony-topology", "version": 1, "name": "größe ☃",
        "nodes": [{"kind": "rank", "name": "räng0"}, {"kind": "rank", "name": "räng1"}],
        "links": [{"between": ["räng0", "räng1"], "alpha": "1us", "bandwidth": "1GB/s"}],
    }), encoding="utf-8-sig")  # fmt: skip
    for words in (["topo", "show", "file:net.json"], ["bound", "file:net.json", "all_reduce"]):
        ended = command_line(*words, cwd=tmp_path, PYTHONIOENCODING="ascii")
        assert ended.returncode == 0, ended.stderr
        assert "gr??e ?" in ended.stdout


ENDLESS = ("bench", "all_reduce", "-b", "8", "-N", "0", "--csv", "a.csv", "-J", "a.json")


def test_a_terminated_command_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "syntony", *ENDLESS],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as endless:  # fmt: skip
        assert endless.stdout is not None
        assert endless.stderr is not None
        while not (line := endless.stdout.readline()).startswith("   "):
            assert line, endless.stderr.read()
        endless.send_signal(signal.SIGTERM)
        endless.stdout.read()
        said = endless.stderr.read()
    assert endless.returncode == 128 + signal.SIGTERM
    assert said == "syntony: stopped; what there was by then is in a.json, a.csv\n"
    assert len((tmp_path / "a.csv").read_text().splitlines()) >= 2
    assert json.loads((tmp_path / "a.json").read_text())["results"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "a.json"]
