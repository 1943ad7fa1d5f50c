"""`syntony man`: the manual page of all commands in troff's `man` macros, made from the command table."""

from __future__ import annotations

import argparse

import syntony
from syntony.base.answer import tell
from syntony.base.command import Command
from syntony.base.files.whole_file import write_text
from syntony.base.outputs import add_output, wrote
from syntony.commands import GROUPS, commands_of
from syntony.parser import parser_of


def page() -> str:
    """The text of syntony.1."""
    lines = [
        f'.TH SYNTONY 1 "" "Syntony {syntony.__version__}" "User Commands"',
        ".SH NAME",
        "syntony \\- collective communication for the wires that there are",
        ".SH SYNOPSIS",
        ".B syntony",
        "\\fICOMMAND\\fR ...",
        ".SH DESCRIPTION",
        "Takes a description of how processors are wired, finds the schedules that move data over those wires as fast",
        "as the wires allow, proves them correct, runs them, and hides them behind computation.",
    ]
    for title, verbs in GROUPS.items():
        lines.append(f".SH {title.upper()}")
        for command in (command for verb in verbs for command in commands_of(verb)):
            lines += _section(command)
    lines += [
        ".SH EXIT STATUS",
        *_item("0", "done"),
        *_item("1", "the answer is no, or a rank failed"),
        *_item("2", "a mistake in the input, told in one sentence"),
        *_item("70", "an error inside Syntony"),
        *_item("130, 143", "interrupted, ended by SIGTERM"),
    ]
    return "\n".join(lines) + "\n"


def _section(command: Command) -> list[str]:
    parser = parser_of(command)
    lines = [f".SS {_plain('syntony ' + ' '.join(command.name))}", f"{_plain(command.summary)}.", ".PP", ".nf"]
    lines += [_plain(line) for line in parser.format_usage().removeprefix("usage: ").splitlines()]
    lines.append(".fi")
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or "--help" in action.option_strings:
            continue
        name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        takes = "" if action.nargs == 0 else f" {name}"
        flags = ", ".join(f"{flag}{takes}" for flag in action.option_strings) or name
        told = parser._get_formatter()._expand_help(action) if action.help else ""
        lines += _item(flags, " ".join(told.split()))
    return [*lines, ".PP", "Example:", ".PP", ".nf", _plain(f"    {command.example}"), ".fi"]


def _item(term: str, text: str) -> list[str]:
    return [".TP", f"\\fB{_plain(term)}\\fR", _plain(text)]


def _plain(text: str) -> str:
    """Escapes text so that troff prints it literally."""
    safe = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{safe}" if safe[:1] in (".", "'") else safe


def _configure(parser: argparse.ArgumentParser) -> None:
    add_output(parser, "-o", "--output", metavar="F.1", help="write it (default: print it; `man ./F.1` shows it)")


def _run(options: argparse.Namespace) -> int:
    text = page()
    file = None if options.output is None else str(options.output)
    if options.output is not None:
        write_text(options.output, text)
        tell(options, {"file": file}, [wrote(options.output)])
    elif options.json:
        tell(options, {"file": None, "page": text}, [])
    else:
        print(text, end="")
    return 0


COMMANDS = (
    Command(
        name=("man",),
        summary="print the manual page of all commands",
        example="syntony man -o syntony.1",
        configure=_configure,
        run=_run,
    ),
)
