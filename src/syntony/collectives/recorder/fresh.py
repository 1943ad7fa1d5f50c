"""Asks running ranks for their records through the folder SYNTONY_TRACE_DIR."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from syntony.base.command import UserError
from syntony.collectives.recorder.records import Dump, read_folder


def fresh(folder: Path, patience: float) -> Sequence[Dump]:
    """Touches the file that ranks watch, and waits until all of them have answered or `patience` seconds have passed.

    Records of ranks that have not answered are older, as their `wall` shows. Raises UserError if there are none.
    """
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder; give the one that SYNTONY_TRACE_DIR names")

    def there() -> Sequence[Dump]:
        return read_folder(folder) if any(folder.glob("syntony_rank_*")) else []

    before = {dump.rank: dump.wall for dump in there()}
    deadline = time.monotonic() + patience
    (folder / "now").touch()
    while time.monotonic() < deadline:
        time.sleep(0.1)
        dumps = there()
        members = {member for dump in dumps for group in dump.groups for member in group.members}
        if dumps and members <= {dump.rank for dump in dumps if dump.wall != before.get(dump.rank)}:
            break
    return read_folder(folder)
