"""A page about Syntony's groups in torch's debug server: who is behind, who is slow, the last operations.

rank 0: browser ── /syntony ──► frontend ── POST /handler/syntony ──► every rank's worker server: its flight record
                                   └── read and compared as `syntony trace --now` does
"""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.command import UserError
from syntony.collectives.recorder.records import Dump, dump, findings, parse, table
from syntony.collectives.recorder.slow import slow_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable

ENDPOINT = "syntony"


def debug_handlers() -> list[Any]:
    """The pages of torch's debug server and, last, Syntony's; call it on every rank, in the place of none:

        torch.distributed.debug.start_debug_server(handlers=syntony.debug_handlers())

    ImportError where torch has no debug server that takes handlers , or lacks what it needs (tabulate).
    """
    from torch._C import _distributed_c10d as c10d
    from torch.distributed.debug._debug_handlers import default_handlers

    from syntony.collectives.torch_backend.debug_handler import SyntonyHandler

    register: Callable[[str, Callable[[Any, Any], None]], None] = c10d._register_handler
    register(ENDPOINT, _answer)
    return [*default_handlers(), SyntonyHandler()]


def _answer(_: Any, response: Any) -> None:
    """A rank's side: its flight records, as they are written to files."""
    response.set_content(records(), "application/json")
    response.set_status(200)


def records() -> str:
    """The flight records of this process."""
    with tempfile.TemporaryDirectory() as folder:
        return json.dumps([base64.b64encode(path.read_bytes()).decode() for path in map(Path, dump(folder))])


def told(answers: Iterable[tuple[int, str]]) -> str:
    """The page's text, of each rank's status and `records`."""
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
    behind = [*findings(dumps), *map(str, slow_ranks(dumps))]
    return [*(behind or ["no rank is behind"]), "", *table(dumps, last=20)]
