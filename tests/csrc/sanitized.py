"""Programs of the core, built apart from everything else with sanitizers or without: `sanitized("fuzz", ADDRESS)`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.programs import ROOT

ADDRESS = "address,undefined"
THREAD = "thread"


def sanitized(name: str, sanitizers: str) -> Path:
    """Builds what has changed since the last time: minutes the first time."""
    folder = ROOT / "build" / f"sanitize-{sanitizers.replace(',', '-')}"
    options = [f"-DSYNTONY_SANITIZE={sanitizers}", f"-DPython_EXECUTABLE={sys.executable}", "-DSYNTONY_IN_PLACE=OFF"]
    run = [
        ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", *options],
        ["cmake", "--build", folder, "--target", name, "--parallel", str(os.cpu_count())],
    ]
    for command in run:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return folder / "tests" / name
