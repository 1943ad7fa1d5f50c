"""Scripts: Python files with algorithms, for the command line."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from syntony.base.command import UserError
from syntony.base.files.bundled import bundled, ours
from syntony.synth.dsl.decorator import Algorithm
from syntony.synth.dsl.lines import DslError

EXAMPLES: Mapping[str, Path] = bundled(Path(__file__).with_name("examples"), ".py")


def algorithm_of(place: str) -> Algorithm:
    """The algorithm `script.py` or `script.py:name`, or one of `EXAMPLES` by name.

    UserError if the script fails or does not have exactly one algorithm of that name.

    Runs the script, except for code under `if __name__ == "__main__"`.
    """
    path, name = Path(place), ""
    if not path.is_file() and ":" in place:
        text, _, name = place.rpartition(":")
        path = Path(text)
    if not path.is_file() and str(path) in EXAMPLES:
        path = EXAMPLES[str(path)]
    if not path.is_file():
        raise UserError(
            f"{place}: there is no script {path}; write script.py or script.py:name{ours(str(path), EXAMPLES)}"
        )
    found = {value.name: value for value in _run(path).values() if isinstance(value, Algorithm)}
    if name in found:
        return found[name]
    have = ", ".join(found) or "none"
    if name:
        raise UserError(f"{path}: there is no algorithm '{name}' in it; it has {have}")
    if len(found) != 1:
        raise UserError(f"{path}: which algorithm? Write {path}:NAME; it has {have}")
    return next(iter(found.values()))


def as_user_error(error: BaseException, path: Path) -> UserError:
    """A script's error as shown to its author: the innermost line of the script, and the error."""
    if isinstance(error, SyntaxError):
        return UserError(f"{path}:{error.lineno}: {error.msg}")
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    return UserError(f"{path}:{lines[-1] if lines else 1}: {type(error).__name__}: {error}")


def _run(path: Path) -> dict[str, object]:
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # a script can import its neighbours, as when run directly
    try:
        return runpy.run_path(str(path), run_name=path.stem)
    except DslError:
        raise
    except Exception as error:
        raise as_user_error(error, path) from error
    finally:
        sys.path.remove(folder)
