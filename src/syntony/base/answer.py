"""The output of a command: text in lines of at most the terminal's width, or one JSON object with --json.

All commands share one format: a JSON object on one line, whose first key is "command". A failing command prints
{"command": .., "error": the sentence, "code": the exit code}, and the sentence on stderr as always.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

NARROW = 80


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json; the top-level parser does so for every command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def tell(options: argparse.Namespace, told: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Prints a command's result, for programs or for people."""
    print(answer_text(options, told, lines), end="", flush=True)


def answer_text(options: argparse.Namespace, told: Mapping[str, Any], lines: Iterable[str]) -> str:
    """The text that `tell` would print."""
    if options.json:
        return json.dumps({"command": options.command, **told}, ensure_ascii=False) + "\n"
    return "\n".join(fitted(lines)) + "\n"


def show(lines: Iterable[str]) -> None:
    """Prints lines for people."""
    print("\n".join(fitted(lines)), flush=True)


def tell_json(told: Mapping[str, Any]) -> None:
    """Prints a JSON object for programs."""
    print(json.dumps(told, ensure_ascii=False), flush=True)


def keep_stdout_for_answers() -> None:
    """From here on only `print` reaches the process's stdout. Output of libraries (HiGHS prints lines that no option
    turns off) and of child processes goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(kept, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def width() -> int:
    """Columns for text: the terminal's, at most 100; 80 without a terminal."""
    return max(20, min(100, shutil.get_terminal_size((NARROW, 24)).columns))


def fitted(lines: Iterable[str]) -> list[str]:
    """The lines, wrapped to the terminal's width between words.

    Continuation lines are indented by four more. Words, including paths, are never broken.
    """
    if not sys.stdout.isatty():
        return list(lines)
    return [part for text in lines for line in text.split("\n") for part in wrapped(line)]


def wrapped(line: str, most: int | None = None, more: str = "    ") -> list[str]:
    """One line as lines of at most `most` columns (default: the terminal's); `more` indents all but the first."""
    most = most or width()
    if len(line) <= most:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.strip(), most, initial_indent=indent, subsequent_indent=indent + more,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def shell_lines(command: str, most: int | None = None, indent: str = "  ") -> list[str]:
    r"""A command line for copying: wrapped between words, each line but the last ends in a backslash."""
    most = most or width()
    lines = [indent]
    for word in command.split(" "):
        if len(lines[-1]) > len(indent) and len(lines[-1]) + len(word) + 3 > most:
            lines[-1] = lines[-1] + "\\"
            lines.append(indent + "  ")
        lines[-1] += word + " "
    lines[-1] = lines[-1].rstrip()
    return lines
