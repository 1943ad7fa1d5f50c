"""A page about Syntony's groups in torch's debug server: who is behind, who is slow, the last operations.

rank 0: browser ── /syntony ──► frontend ── POST /handler/syntony ──► every rank's worker server: its flight record
                                   └── read and compared as `syntony trace --now` does
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from syntony.base.command import UserError
from syntony.collectives.recorder.records import Dump, dump, findings, parse, table
from syntony.collectives.recorder.verdict import slow

if TYPE_CHECKING:
    from collections.abc import Iterable


def records() -> str:
    """The flight records of this process."""
    with tempfile.TemporaryDirectory() as folder:
        return json.dumps([base64.b64encode(path.read_bytes()).decode() for path in map(Path, dump(folder))])


def told(answers: Iterable[tuple[int, str]]) -> str:
    """The page's text, from each rank's status and `records`."""
    dumps: list[Dump] = []
    lines: list[str] = []
    for rank, (status, text) in enumerate(answers):
        try:
            if status != 200:
                raise UserError(f"its worker server says {status}: {text.strip()}")
            dumps += [parse(base64.b64decode(one), f"the record of rank {rank}") for one in json.loads(text)]
        except (UserError, ValueError) as error:
            lines.append(f"rank {rank} gave no record: {error}")
    return "\n".join([*lines, *_compared(dumps)])


def _compared(dumps: Sequence[Dump]) -> list[str]:
    if not dumps:
        return ["no group of Syntony's has a record"]
    behind = [*findings(dumps), *slow(dumps).values()]
    return [*(behind or ["no rank is behind"]), "", *table(dumps, last=20)]
