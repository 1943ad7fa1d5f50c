"""The verbs bound, synth and simulate through the front door: keys, exit codes, sentences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from syntony.__main__ import main
from syntony.synth.commands import COMMANDS


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)


def test_bound(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, "bound", "dgx1", "all_gather", "--json")
    assert told["latency"]["steps"] == 2
    assert told["latency"]["seconds"] == pytest.approx(1.4e-6)
    assert Fraction(told["throughput"]["seconds_per_byte"]) == Fraction(7, 6) / 8 / 25_000_000_000
    assert told["throughput"]["algbw"] == pytest.approx(8 * 25e9 * 6 / 7)
    assert told["throughput"]["witness"]["kind"] == "cut"
    assert told["rounds_per_chunk"] == "7/6"
    assert told["words"].startswith("7/8 of the size must enter rank 0 over 4 links")
    assert told["searched"] == "all cuts"
    assert "references" not in told


def test_bound_of_all_reduce_says_what_is_no_bound(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, "bound", "mesh:4x4", "all_reduce", "--json")
    assert told["throughput"]["algbw"] == pytest.approx(1.6e9)
    assert told["references"]["trees"]["algbw"] == pytest.approx(1.6e9)
    assert Fraction(told["references"]["composition"]["seconds_per_byte"]) == Fraction(15, 16) / 10**9
    assert main(["bound", "mesh:4x4", "all_reduce"]) == 0
    bound, references = capsys.readouterr().out.split("for reference (these are not bounds)")
    assert "1.6 GB/s" in bound
    assert "messages that leave them" in bound
    assert "both at once (meets the bound)" in references
    assert "1.06667 GB/s   reduce_scatter, then all_gather (66.7% of the bound)" in references


def test_synth_verify_simulate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, trace = tmp_path / "f.json", tmp_path / "trace.json"
    words = ("synth", "dgx1", "all_gather", "--steps", "2", "--rounds", "3", "--chunks", "2", "-o", str(path), "--json")
    told = answer(capsys, *words)
    assert set(told) == {
        "command",
        "file",
        "engine",
        "steps",
        "rounds",
        "chunks",
        "bounds",
        "gap",
        "simulated",
        "proof",
        "seconds",
    }
    assert (told["file"], told["engine"], told["steps"], told["rounds"], told["chunks"]) == (str(path), "sccl", 2, 3, 2)
    assert told["gap"] == pytest.approx(2 / 7)
    assert told["proof"] == "steps 2 = distance bound; R/C = 3/2 vs throughput bound 7/6"
    assert main(["verify", str(path)]) == 0
    capsys.readouterr()
    found = answer(capsys, "simulate", str(path), "--size", "1G", "--trace", str(trace), "--json")
    assert {"seconds", "algbw", "busbw", "bound_seconds", "fraction"} <= set(found)
    assert found["seconds"] >= found["bound_seconds"] > 0
    assert found["fraction"] == pytest.approx(found["bound_seconds"] / found["seconds"])
    assert found["algbw"] == pytest.approx(2**30 / found["seconds"])
    assert json.loads(trace.read_text())["traceEvents"]


def test_pareto(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    told = answer(capsys, "synth", "ring:4", "all_gather", "--pareto", "-o", str(tmp_path / "p.json"), "--json")
    assert told["complete"]
    assert [point["file"] for point in told["points"]] == [str(tmp_path / "p.2-2-3.json")]
    assert (tmp_path / "p.2-2-3.json").exists()


def test_stories_name_bound_gap_and_proof(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "ring:3", "broadcast", "--root", "2", "--members", "0,1,2", "--engine", "greedy"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("bound", "gap", "correct  checked", "optimal", "engine greedy"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("bound nowhere all_gather", "unknown topology 'nowhere'"),
        ("bound dgx1 all_gathered", "no collective 'all_gathered' (did you mean all_gather?)"),
        ("bound dgx1 broadcast --root 8", "root 8 is not a rank of this collective; ranks are 0..7"),
        ("bound dgx1 all_gather --members 0,9", "member on rank 9, but dgx1 has only ranks 0..7"),
        ("bound dgx1 all_gather --members 0,x", "'x' is not a rank"),
        ("synth dgx1 all_gather --engine sscl", "no engine 'sscl' (did you mean sccl?)"),
        ("synth dgx1 all_gather --steps 1 --rounds 1", "data must travel 2 steps"),
        ("synth dgx1 all_gather --rounds 2", "--rounds needs --steps: give both, or neither"),
        ("synth dgx1 all_gather --steps 0", "'0' is not a whole number from 1"),
        ("synth dgx1 all_to_all --chunks 3", "all_to_all needs a multiple of 8"),
        ("synth dgx1 all_gather --size 1Q", "'1Q' is not a size"),
        ("synth dgx1 all_gather --timeout nan", "'nan' is not a number of seconds above 0"),
        ("synth dgx1 all_gather --pareto --steps 2", "--pareto walks the frontier of engine sccl"),
        ("synth dgx1 all_gather -o nowhere/f.json", "there is no folder nowhere"),
        ("simulate nowhere.json", "nowhere.json: cannot be read"),
    ],
)
def test_mistakes_are_one_sentence(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert not list(tmp_path.iterdir())


def test_importing_synth_loads_no_heavy_room() -> None:
    code = """
import sys
import syntony.synth.commands, syntony.synth.model.schedule, syntony.synth.simulation.schedule_simulator
import syntony.synth.formats.schedule_file, syntony.synth.engines.registry
import syntony.synth.simulation.program_simulator
import syntony.synth.bounds.throughput, syntony.synth.engines.sccl.search, syntony.synth.engines.greedy
print(sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "z3", "scipy", "networkx"}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_one_of_a_thing_is_not_plural(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "ring:2", "broadcast"]) == 0
    assert main(["synth", "ring:1", "all_gather"]) == 0
    out = capsys.readouterr().out
    for phrase in (
        "latency     1 step,",
        "1 round per chunk",
        "over one link of",
        "on ring:1: 0 steps, 1 chunk (",
        "gap      none",
    ):
        assert phrase in out


def test_examples_work_as_they_stand(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pasted in the order in which the commands are listed."""
    monkeypatch.chdir(tmp_path)
    for command in COMMANDS:
        program, *words = command.example.split()
        assert program == "syntony"
        assert main(words) == 0, capsys.readouterr().err
    assert {"allgather.json", "allgather.xml", "trace.json"} <= {path.name for path in tmp_path.iterdir()}


def test_what_is_not_proven_is_not_simulated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transfer is taken out: no time is printed."""
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "ring:3", "all_gather", "--engine", "greedy", "-o", "s.json"]) == 0
    data = json.loads(Path("s.json").read_text())
    moved = data["transfers"]
    length = len(moved["src"])
    data["transfers"] = {key: column[:-1] if len(column) == length else column for key, column in moved.items()}
    Path("s.json").write_text(json.dumps(data))
    assert main(["verify", "s.json"]) == 1
    fault = capsys.readouterr().out.splitlines()[-1].partition("invalid: ")[2]
    assert main(["simulate", "s.json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"syntony: s.json: {fault}\n"


def test_schedules_and_builders_are_cut_alike_and_it_is_said_how(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(tmp_path / "s.json")
    assert main(["synth", "ring:4", "all_gather", "--engine", "greedy", "-o", path]) == 0
    capsys.readouterr()
    ring = ("simulate", "builder:ring:all_gather", "--topology", "ring:4", "--size", "64M")
    schedule = answer(capsys, "simulate", path, "--size", "64M", "--json")
    builder = answer(capsys, *ring, "--json")
    assert schedule["slices"].startswith("of 128 KiB")
    assert builder["slices"].startswith("of 128 KiB")
    assert schedule["paths"] == "as scheduled, cut-through"
    assert main([*ring]) == 0
    assert "slices   of 128 KiB" in capsys.readouterr().out


def test_a_large_trace_is_thinned_and_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syntony.synth.simulation.trace.MOST_BOXES", 40)
    monkeypatch.setattr("syntony.synth.simulation.trace.write_trace.__defaults__", (40,))
    trace = tmp_path / "t.json"
    words = ("simulate", "builder:ring:all_gather", "--topology", "ring:4", "--size", "4M", "--trace", str(trace))
    assert main(list(words)) == 0
    assert re.search(
        r"wrote .*t\.json \(thinned: up to \d+ slices of a message in one box; .* kB\)", capsys.readouterr().out
    )
    boxes = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert 0 < len(boxes) <= 80
    assert (
        max(box["ts"] + box["dur"] for box in boxes) <= 1e6 * answer(capsys, *words[:6], "--json")["seconds"] * 1.0001
    )


def test_one_rank_has_nothing_to_prove(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["synth", "ring:1", "all_reduce", "--engine", "forest"]) == 0
    assert "  gap      none\n  correct  checked\n  optimal  proven: nothing moves\n" in capsys.readouterr().out


def test_the_proof_is_short_and_explained_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["synth", "ring:4", "all_reduce", "--engine", "forest"]
    assert main(words) == 0
    short = capsys.readouterr().out
    assert "  correct  checked\n" in short
    assert re.search(r"  optimal  (proven|in part|not proven)", short)
    assert "proof" not in short.replace("proven", "")
    assert main([*words, "--explain"]) == 0
    whole = capsys.readouterr().out
    assert all(f"\n  {word}" in whole for word in ("witness", "exactly", "proof"))
