"""Runs the clients (clients.py) on gloo and on Syntony and compares what they computed: `make test-clients`.

    python -m tests.clients [SCRIPT ..] [--write FILE]

Every script runs three times: with the name "gloo", with the name "syntony", and with the name "gloo" under
SYNTONY_REPLACE=gloo. Losses must be those of gloo, and the backend that served must be the one that was asked for. The
times are for the table; nothing depends on them. Exit code 1 when a client failed or computed something else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from tests.clients.clients import CLIENTS, Client

HERE = Path(__file__).parent
MODES = {"gloo": ("gloo", ""), "name": ("syntony", ""), "replace": ("gloo", "gloo")}
"""By mode: the name of the backend that the script uses, and SYNTONY_REPLACE."""
LIMIT = 900.0
"""Seconds for one run of one script; DeepSpeed compiles an operator in its first."""
KEPT = Path(sys.prefix) / "clients.json"
"""The lines of the table of the clients that were good, so that one may be run again alone."""
BEGIN, END = "<!-- begin: make test-clients -->", "<!-- end: make test-clients -->"


@dataclass(frozen=True)
class Part:
    """What one part of a script said."""

    losses: tuple[float, ...]
    step_seconds: float
    served: str


@dataclass(frozen=True)
class Run:
    """One run of a script: its parts by name, or what it said when it ended badly."""

    parts: dict[str, Part]
    code: int | None
    """None when it was ended at the limit."""
    output: str


def run(client: Client, mode: str) -> Run:
    """Runs the client's script in one mode, in a session of its own that ends with it."""
    backend, replaced = MODES[mode]
    script = str(HERE / "scripts" / f"{client.script}.py")
    command = [sys.executable, script]
    if client.torchrun is not None:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(client.ranks)]
        command = [sys.executable, *torchrun, *client.torchrun, script]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SYNTONY_")}
    for stale in (Path(sys.prefix) / "torch_extensions").glob("*/lock"):
        stale.unlink()  # of a compilation that was ended; the next one would wait for it for ever
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "output").open("w+") as output:
        environment |= {
            "CLIENT_BACKEND": backend,
            "CLIENT_FOLDER": folder,
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        environment["TORCH_EXTENSIONS_DIR"] = str(Path(sys.prefix) / "torch_extensions")
        environment |= {"SYNTONY_REPLACE": replaced} if replaced else {}
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        code: int | None = None
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun's workers are in sessions of their own: it ends them
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        said = output.read()
    parts = {}
    for line in said.splitlines():
        if line.startswith("CLIENT "):
            told = json.loads(line.removeprefix("CLIENT "))
            parts[told["part"]] = Part(tuple(told["losses"]), told["step_seconds"], told["served"])
    return Run(parts, code, said)


def difference(ours: tuple[float, ...], theirs: tuple[float, ...]) -> float:
    """The largest relative one; infinite where there are not as many, or where one is no number."""
    if len(ours) != len(theirs) or not ours:
        return float("inf")
    return max(
        0.0 if a == b else abs(a - b) / max(abs(b), 1e-30) if a - b == a - b else float("inf")
        for a, b in zip(ours, theirs, strict=True)
    )


def faults(client: Client, mode: str, ran: Run, gloo: Run) -> list[str]:
    """What is wrong with a run; nothing is right."""
    if mode == "name" and client.refuses:
        refused = ran.code not in (0, None) and client.refuses in ran.output
        return [] if refused else [f"it did not say {client.refuses!r}: has it learned the name?"]
    if ran.code != 0:
        ended = f"ended after {LIMIT:.0f} s" if ran.code is None else f"exit code {ran.code}"
        return [f"{ended}\n{ran.output[-3000:]}"]
    served = "gloo" if mode == "gloo" or (mode == "replace" and not client.replaceable) else "syntony"
    found = [] if ran.parts else [f"it told nothing\n{ran.output[-3000:]}"]
    for name, part in ran.parts.items():
        if part.served != served:
            found.append(f"{name}: served by {part.served}, not by {served}")
    for name, theirs in gloo.parts.items():
        losses = ran.parts[name].losses if name in ran.parts else ()
        if (far := difference(losses, theirs.losses)) > client.tolerance:
            found.append(f"{name}: losses differ from gloo's by {far:.2g}: {losses} and {theirs.losses}")
    return found


def rows(client: Client, runs: dict[str, Run]) -> list[str]:
    """The table's lines of one client."""
    lines = []
    for name, gloo in runs["gloo"].parts.items():
        cells = [f"{client.shown} {name}".strip(), version(client.distribution).partition("+")[0], str(client.ranks)]
        cells.append(f"{1 / gloo.step_seconds:.1f}")
        far = []
        for mode in ("name", "replace"):
            part = runs[mode].parts.get(name)
            if part is None or part.served != "syntony":
                cells.append("[^]" if client.why else "-")
            else:
                cells.append(f"{1 / part.step_seconds:.1f}")
                far.append(difference(part.losses, gloo.losses))
        worst = max(far, default=float("nan"))
        cells.append("equal" if worst == 0 else f"{worst:.0e}")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def table(lines_of: dict[str, list[str]]) -> str:
    """Markdown: a line for each part of each client (`lines_of`, by script), and why what is missing is missing."""
    heads = ["client", "version", "ranks", "steps/s, gloo", '`"syntony"`', "`SYNTONY_REPLACE=gloo`", "losses"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    notes: list[str] = []
    for client in (client for client in CLIENTS if client.script in lines_of):
        if client.why:
            notes.append(f"{len(notes) + 1}. {client.shown}: {client.why}.")
        lines += [line.replace("[^]", f"({len(notes)})") for line in lines_of[client.script]]
    return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def kept() -> dict[str, list[str]]:
    """By script, the lines of its last good run."""
    return dict(json.loads(KEPT.read_text())) if KEPT.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="which (default: all)")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="put the table of all good runs, earlier ones too, between its two marks in this page",
    )
    arguments = parser.parse_args()
    names = {client.script for client in CLIENTS}
    if unknown := set(arguments.scripts) - names:
        parser.error(f"no client {', '.join(sorted(unknown))}; there are {', '.join(sorted(names))}")

    bad, asked = 0, [client for client in CLIENTS if not arguments.scripts or client.script in arguments.scripts]
    for client in asked:
        runs: dict[str, Run] = {}
        before = bad
        for mode in MODES:
            started = time.monotonic()
            runs[mode] = run(client, mode)
            wrong = faults(client, mode, runs[mode], runs["gloo"])
            bad += bool(wrong)
            seconds = time.monotonic() - started
            print(
                f"{'FAULT' if wrong else 'good'} {client.script} {mode} {seconds:.0f} s", *wrong, sep="\n  ", flush=True
            )
        if bad == before:
            KEPT.write_text(json.dumps({**kept(), client.script: rows(client, runs)}, indent=1))
    text = table(kept())
    print(text)
    if arguments.write and not bad:
        page = arguments.write.read_text()
        head, _, rest = page.partition(BEGIN)
        _, _, tail = rest.partition(END)
        arguments.write.write_text(f"{head}{BEGIN}\n{text}{END}{tail}")
    print(f"{len(MODES) * len(asked) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
