"""A job while `syntony trace --every` watches it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).parents[3]


def watched(folder: Path, job: Callable[[], None]) -> list[tuple[float, str]]:
    """Runs `job`, which records to `folder`: each thing said of it, and how many seconds after its start."""
    folder.mkdir(exist_ok=True)
    watch = subprocess.Popen(
        [sys.executable, "-m", "syntony", "trace", str(folder), "--every", "2"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        begin = datetime.now()
        job()
        said, _ = watch.communicate(timeout=60)
    finally:
        watch.kill()
        watch.wait()
    print(said)
    told = []
    for line in said.splitlines():
        found = re.fullmatch(r"(\d\d:\d\d:\d\d) (.*)", line)
        if found is not None:
            at = datetime.combine(begin.date(), datetime.strptime(found[1], "%H:%M:%S").time())
            told.append(((at - begin).total_seconds() % 86400, found[2]))
    return told
