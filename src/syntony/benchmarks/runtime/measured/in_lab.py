"""A module of this folder as the ranks of a lab: what they are asked, and what rank 0 answers, through files.

python -m syntony.benchmarks.runtime.measured.MODULE WORK RESULTS         on every rank, as root
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from syntony.lab.lab import Lab
from syntony.lab.lab_spec import LabError


def answer_of_rank_0(lab: Lab, module: str, work: object) -> Any:
    """What MODULE's rank 0 wrote as RESULTS, given `work`; both are JSON. Raises LabError if a rank fails."""
    with tempfile.TemporaryDirectory(prefix="syntony-ranks-") as folder:
        asked, results = Path(folder, "work"), Path(folder, "results")
        asked.write_text(json.dumps(work))
        said: list[bytes] = []
        ranks = [sys.executable, "-m", f"syntony.benchmarks.runtime.measured.{module}", str(asked), str(results)]
        if lab.run(ranks, write=said.append):
            name = lab.spec.topology.name
            raise LabError(f"{name}: the ranks failed\n" + b"".join(said).decode(errors="replace"))
        return json.loads(results.read_text())
