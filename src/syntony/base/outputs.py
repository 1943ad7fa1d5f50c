"""Files that a command writes: one rule for all, checked before any work begins.

    parser ── add_output ──► action Output ── arguments_of ──► require_outputs     before the work: exit code 2
                                                 --force       write_text, RowFile  after it, or row by row
                                                               wrote                "wrote F (12 MB)"

The folder must exist, accept a new file and have room for it; the name must end as the format's files do; an existing
file is kept unless the command is given `--force`. A path that is neither a file nor a folder (/dev/null, a pipe) is
written directly.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syntony.base.command import UserError
from syntony.base.files.strict_json import FileError
from syntony.base.files.whole_file import beside, is_special
from syntony.base.wording import rounded_size

_ROOM = 1 << 16  # free bytes required in a file's folder
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")  # of launchers; rank 0 writes


class Output(argparse.Action):
    """An argument that names a file to write or, with `folder`, a folder to fill.

    `endings`: the allowed endings of the name, such as (".json",); empty allows any. `what`: the kind of file, for the
    message that rejects another ending.
    """

    def __init__(self, *, endings: Sequence[str] = (), what: str = "", folder: bool = False, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.endings, self.what, self.folder = tuple(endings), what, folder

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        setattr(namespace, self.dest, values)


def add_output(parser: argparse._ActionsContainer, *flags: str, **keywords: Any) -> None:
    """Adds an argument of class Output; a Path unless `type` says otherwise."""
    parser.add_argument(*flags, action=Output, type=keywords.pop("type", Path), **keywords)


def outputs_of(parser: argparse.ArgumentParser) -> Iterator[Output]:
    """The arguments that name outputs."""
    yield from (action for action in parser._actions if isinstance(action, Output))


def add_force(parser: argparse.ArgumentParser) -> None:
    """Adds --force to a command with outputs."""
    if any(True for _ in outputs_of(parser)):
        parser.add_argument("--force", action="store_true", help="replace files that exist")


def require_outputs(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[Path]:
    """The files that will be written and do not exist yet. Raises UserError for one that cannot be written."""
    named = [(action, getattr(arguments, action.dest)) for action in outputs_of(parser)]
    given = [(action, Path(value)) for action, value in named if value is not None]
    if any(os.environ.get(variable, "0") != "0" for variable in _RANKS):
        return []
    seen: set[Path] = set()
    for action, path in given:
        if path in seen:
            raise UserError(f"{path}: it is to be written twice; give each output a name of its own")
        seen.add(path)
        _require_ending(action, path)
        if action.folder:
            _require_folder(path)
        else:
            require_output(path, arguments.force)
    return [path for action, path in given if not action.folder and not path.exists()]


def require_output(path: Path, force: bool) -> None:
    """Raises UserError if the file cannot be written, or exists and may not be replaced."""
    if is_special(path):
        return
    if path.is_dir():
        raise UserError(f"{path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}")
    if path.exists() and not force:
        raise UserError(f"{path}: it exists; --force replaces it")
    _try(path)


def require_series(path: Path | None, names: str, force: bool) -> None:
    """Checks a series of files beside `path` whose number is not known in advance: F.NAME.json for F.json, where NAME
    matches `names`. Raises UserError if one exists and may not be replaced."""
    if path is None or is_special(path):
        return
    pattern = re.compile(f"{re.escape(path.stem)}\\.(?:{names}){re.escape(path.suffix)}")
    there = sorted(other.name for other in path.parent.iterdir() if pattern.fullmatch(other.name))
    if there and not force:
        more = f", and {len(there) - 1} more of the kind" if len(there) > 1 else ""
        raise UserError(f"{path.with_name(there[0])}: it exists{more}; --force replaces what is there")


def wrote(path: Path | str, about: str = "") -> str:
    """ "wrote F (about; 12 MB)", for a file that was written."""
    path = Path(path)
    told = [about] if about else []
    if path.is_file():
        told.append(rounded_size(path.stat().st_size))
    return f"wrote {path}" + (f" ({'; '.join(told)})" if told else "")


def _require_ending(action: Output, path: Path) -> None:
    if action.endings and not path.name.lower().endswith(action.endings) and not is_special(path):
        what = f"{action.what}; its name" if action.what else "its name"
        raise UserError(f"{path}: {what} must end in {' or '.join(action.endings)}")


def _require_folder(path: Path) -> None:
    """Requires a folder that exists and is writable, or whose parent is; then it is created."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path}: it is a file, not a folder")
    if not path.exists() and not path.parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}")
    _try((path if path.exists() else path.parent) / "new")


def _try(path: Path) -> None:
    """Writes some bytes beside `path` and removes them. Raises FileError."""
    part = beside(path)
    try:
        with part.open("xb") as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
