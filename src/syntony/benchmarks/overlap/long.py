"""A long run, twice: left alone, and with a rank killed half way. The second must end as if nothing had happened.

    torchrun -m syntony train long.toml ..      step 0 ------------------------------------------------> 1000
    the same                                    step 0 -------------> 500 KILLED
                                                              448 ------ (restarted by torchrun) ------> 1000

Every survivor must end within 5 s and say which rank, op and step; the losses after the restart must be those of the
run that was left alone. The plot shows both curves.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from syntony.base.command import UserError
from syntony.benchmarks.tables import Part, Row, Table
from syntony.collectives.bootstrap.launch import RankError

CONFIG = Path(__file__).parents[2] / "trainer" / "configs" / "long.toml"
RANKS, VICTIM = 4, 1
CLOSE = 1e-5  # of losses, as for tensor parallelism
PATIENCE = 5.0  # seconds for survivors
_SENTENCE = re.compile(r"syntony train: (rank \d+ stops: .*)")


@dataclass(frozen=True)
class Trained:
    """One run: lines of its log by step (of a step that was made twice, the second), and what it printed."""

    lines: Mapping[int, Mapping[str, float]]
    said: str

    @property
    def weights(self) -> str:
        return _found(r"weights sha256 (\w+)", self.said)


@dataclass(frozen=True)
class End:
    """How a rank ended: seconds after the killing, and what it said."""

    rank: int
    seconds: float
    said: str


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def trained(folder: Path, settings: Sequence[str], meanwhile: Callable[[subprocess.Popen[bytes]], None]) -> Trained:
    """A run under torchrun, as a user starts it; `meanwhile` may do what it likes to it. Raises RankError."""
    log = folder / "log.jsonl"
    words = [word for setting in (*settings, f"run.log={log}", f"run.save={folder}") for word in ("--set", setting)]
    launcher = ["--nproc-per-node", RANKS, "--max-restarts", 1, "--monitor-interval", 2, "--redirects", 3]
    command = [sys.executable, "-m", "torch.distributed.run", *launcher, "--log-dir", folder / "said", "-m", "syntony"]
    with (folder / "torchrun").open("wb") as output:
        run = subprocess.Popen([*map(str, command), "train", str(CONFIG), *words], stdout=output, stderr=output)
        try:
            meanwhile(run)
            run.wait()
        finally:
            run.terminate()
            run.wait()
    if run.returncode:
        raise RankError(f"torchrun ended with {run.returncode}: {(folder / 'torchrun').read_text()[-800:]}")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    said = "".join(path.read_text() for path in sorted(folder.glob("said/*/*/*/stdout.log")))
    return Trained({line["step"]: line for line in lines if "step" in line}, said)


def killed(folder: Path, step: int, ends: list[End], run: subprocess.Popen[bytes]) -> None:
    """Kills a rank when `step` is the next, and adds how the others end to `ends`."""
    log = folder / "log.jsonl"
    while not (log.exists() and f'{{"step": {step - 1},' in log.read_text()):
        if run.poll() is not None:
            return
        time.sleep(0.05)
    ranks = _ranks(run.pid)
    begin = time.monotonic()
    os.kill(ranks.pop(VICTIM), signal.SIGKILL)
    while ranks and time.monotonic() < begin + 60:
        for rank, process in list(ranks.items()):
            if not _lives(process):
                del ranks[rank]
                text = "".join(path.read_text() for path in folder.glob(f"said/*/attempt_0/{rank}/stderr.log"))
                ends.append(End(rank, time.monotonic() - begin, _found(_SENTENCE.pattern, text)))
        time.sleep(0.01)
    ends.extend(End(rank, float("inf"), "") for rank in ranks)


def _ranks(parent: int) -> dict[int, int]:
    """Processes of ranks by number: children of torchrun, told by their environment."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) != parent:
                continue
            variables = dict(word.partition("=")[::2] for word in (entry / "environ").read_text().split("\0"))
        except OSError:
            continue
        if "RANK" in variables:
            found[int(variables["RANK"])] = int(entry.name)
    return found


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _rows(options: argparse.Namespace) -> Iterator[Row]:
    steps, half = options.steps, options.steps // 2
    every = max(1, steps // 16)
    if half % every == 0:
        every += 1  # a rank that dies while a checkpoint is written dies between two steps
    settings = [f"run.steps={steps}", f"run.save_every={every}", "run.resume=newest", "run.every=1", "run.timeout=300"]
    settings += [f"run.held_out={max(1, steps // 20)}", f"optimizer.warmup={max(1, steps // 10)}", *options.set]
    with tempfile.TemporaryDirectory(prefix="syntony-long-") as name:
        folders = Path(name, "alone"), Path(name, "killed")
        for folder in folders:
            folder.mkdir()
        alone = trained(folders[0], settings, lambda run: None)
        yield Row(
            ("the run", _found(r"model (.* parameters)", alone.said) + f", {_found(r'ranks (.*?) ·', alone.said)}")
        )
        yield from _losses("left alone", alone, steps)
        ends: list[End] = []
        again = trained(folders[1], settings, partial(killed, folders[1], half, ends))
    yield Row(("rank killed", f"rank {VICTIM}, in step {half}"))
    for end in sorted(ends, key=lambda end: end.rank):
        missed = f"after {end.seconds:.1f} s, not {PATIENCE:g}" if end.seconds > PATIENCE else ""
        wanted = re.search(rf"step {half}: \w+ of \S+ .*rank {VICTIM}\b", end.said)
        yield Row(
            (f"rank {end.rank} ends", f"{end.seconds:.2f} s: {end.said}"), missed or ("" if wanted else "unnamed")
        )
    yield Row(("resumed", f"at step {_found(r'resumed from .*step-(.*)', again.said)}, by torchrun"))
    yield from _losses("resumed", again, steps)
    gap = max(abs(again.lines[step]["loss"] / line["loss"] - 1) for step, line in alone.lines.items())
    yield Row(
        ("losses differ by", f"{gap:.1e} at most, of {len(alone.lines)}"), "" if gap <= CLOSE else f"above {CLOSE}"
    )
    same = "the same" if again.weights == alone.weights else "others"
    yield Row(("weights, sha256", f"{alone.weights[:16]}, {again.weights[:16]}: {same}"))
    if options.output:
        draw(options.output, alone, again, half)


def _losses(what: str, run: Trained, steps: int) -> Iterator[Row]:
    if sorted(run.lines) != list(range(steps)):
        raise RankError(f"the run {what} has a log of {len(run.lines)} steps, not {steps}")
    first, last = run.lines[0], run.lines[steps - 1]
    seconds = sorted(line["seconds"] for line in run.lines.values())[steps // 2]
    yield Row((what, f"loss {first['loss']:.3f} -> {last['loss']:.3f}, held out {last['held_out']:.3f}, "
                     f"{1e3 * seconds:.0f} ms a step (median)"))  # fmt: skip


def draw(path: str, alone: Trained, again: Trained, half: int) -> None:
    """Both curves, one above the other so that each can be seen, and where the rank was killed. Raises UserError."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    curves = (alone, "left alone", "#9ecae1", 4.0), (again, f"rank {VICTIM} killed in step {half}", "#08306b", 0.8)
    for run, label, color, width in curves:
        steps = sorted(run.lines)
        axes.plot(steps, [run.lines[step]["loss"] for step in steps], label=label, color=color, linewidth=width)
    held = [step for step in steps if again.lines[step]["held_out"] is not None]
    axes.plot(held, [again.lines[step]["held_out"] for step in held], "o", color="#d95f02", label="held-out text")
    axes.axvline(half, color="#b2182b", linestyle="--", linewidth=1)
    axes.annotate("SIGKILL", (half, axes.get_ylim()[1]), (4, -12), textcoords="offset points", color="#b2182b")
    axes.set(xlabel="step", ylabel="loss, nats per byte")
    axes.legend(frameon=False)
    try:
        with rc_context({"svg.hashsalt": "long", "svg.fonttype": "none"}):
            figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None, dpi=110)
    except (OSError, ValueError) as error:
        raise UserError(f"-o {path}: cannot be drawn: {error}") from None


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    columns = (("what", -16), ("seen", -80))
    return (Part(f"{options.steps} steps of real text under torchrun, twice", columns, partial(_rows, options)),)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="of each run (1000)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="as of syntony train")
    parser.add_argument("-o", "--output", metavar="FILE", help="draw both loss curves (.svg, .png)")


TABLE = Table("long", "a run of 1,000 steps that loses a rank, against one that does not", _parts, _configure)
