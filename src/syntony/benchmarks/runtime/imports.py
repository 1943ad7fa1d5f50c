"""Table `import`: what Syntony adds to `import torch` for everybody on the machine, and how long the torch glue is.

At its end, `import torch` looks for installed extensions and calls each. Each round is a process of its own that
imports torch without that step, then takes the step alone under a clock: once with Syntony installed, once with no
extension. The difference of the medians is what Syntony costs. (A whole import takes a thousand times longer and varies
by far more than what is sought, so differences between whole imports would tell nothing.)
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from syntony.base.command import UserError
from syntony.benchmarks.tables import Part, Row, Table

MOST_MILLISECONDS = 1.0
MOST_LINES = {"csrc/torch": 1200, "csrc/torch/device": 1100}
"""Goals: between torch and the core, and what tensors on devices need beside that."""

_ROOT = Path(__file__).parents[4]
_STEP = """
import sys, time
import torch
import importlib.metadata as metadata
if sys.argv[1] == "without":
    find = metadata.entry_points
    metadata.entry_points = lambda **names: [e for e in find(**names) if e.name != "syntony"]
begin = time.perf_counter()
torch._import_device_backends()
end = time.perf_counter()
assert hasattr(torch.distributed.Backend, "SYNTONY") == (sys.argv[1] == "with"), "Syntony is not installed"
print(end - begin)
"""


def _seconds(form: str) -> float:
    environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", _STEP, form], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"import torch {form} Syntony failed: {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout)


def _import_rows(rounds: int) -> Iterator[Row]:
    pairs = [(_seconds("without"), _seconds("with")) for _ in range(rounds)]
    without, found = (1000 * median(column) for column in zip(*pairs, strict=True))
    added = found - without
    missed = f"more than {MOST_MILLISECONDS:g} ms" if added > MOST_MILLISECONDS else ""
    yield Row((rounds, f"{without:.2f}", f"{found:.2f}", f"{added:.2f}", f"{MOST_MILLISECONDS:.2f}"), missed)


def glue_lines(folder: str) -> int:
    """Lines of all files of a folder between torch and the core."""
    return sum(len(file.read_text().splitlines()) for file in (_ROOT / folder).glob("*.[ch]pp"))


def _glue_rows() -> Iterator[Row]:
    for folder, most in MOST_LINES.items():
        lines = glue_lines(folder)
        yield Row((folder, lines, most), f"more than {most} lines" if lines > most else "")


def _parts(options: argparse.Namespace) -> tuple[Part, ...]:
    return (
        Part(
            "What Syntony adds to `import torch`: medians of torch's search for extensions, in fresh processes",
            (("rounds", 6), ("without ms", 10), ("with ms", 8), ("added ms", 8), ("goal ms", 8)),
            lambda: _import_rows(options.rounds),
        ),
        Part("The torch glue", (("folder", 17), ("lines", 6), ("goal", 6)), _glue_rows),
    )


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="pairs of processes (9)")


TABLE = Table("import", "what Syntony adds to import torch; the length of the torch glue", _parts, _configure)
