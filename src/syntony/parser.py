"""Builds the parser of a command from its entry in the command table, and prints the help of one or all commands.

Text is wrapped to the terminal's width without breaking words, so that examples can be copied.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from syntony.base.answer import add_json, shell_lines, width, wrapped
from syntony.base.command import Command, UserError
from syntony.base.outputs import add_force
from syntony.base.wording import did_you_mean, unknown


class Parser(argparse.ArgumentParser):
    """An argument parser that reports a mistake in one sentence with a suggestion, instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; `{self.prog} --help` shows what it takes")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As in argparse, but suggests the nearest option for an unknown one."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            word = next((word for word in left if word.startswith("-")), left[0])
            guess = did_you_mean(word.partition("=")[0], self._option_string_actions) if word.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(left)}{guess}")
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            what = action.metavar if isinstance(action.metavar, str) else "choice"
            raise argparse.ArgumentError(action, unknown(what.lower(), str(value), map(str, action.choices)))


class Formatter(argparse.HelpFormatter):
    """Fills paragraphs, but keeps lines that begin with a space as they are, unless they are too wide."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26, width=width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(part for line in text.splitlines() for part in wrapped(indent + line, width, more=""))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width, more="")


def parser_of(command: Command) -> argparse.ArgumentParser:
    """The parser of one command, with its help."""
    example = "\n".join(shell_lines(command.example))
    parser = Parser(
        prog=f"syntony {' '.join(command.name)}",
        description=f"{command.summary}.",
        epilog=f"example:\n{example}",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    if "--json" not in parser._option_string_actions:
        add_json(parser)
    add_force(parser)
    return parser


def arguments_of(command: Command, words: Sequence[str]) -> argparse.Namespace:
    """Parses `words` as the arguments of `command`. Raises UserError that says what is wrong."""
    return parsed(parser_of(command), command, words)


def parsed(parser: argparse.ArgumentParser, command: Command, words: Sequence[str]) -> argparse.Namespace:
    """`arguments_of` with an existing parser."""
    words = list(words)
    split = words.index("--") if command.passes_on and "--" in words else len(words)
    arguments = parser.parse_args(words[:split])
    arguments.command = " ".join(command.name)
    if command.passes_on:
        arguments.passed_on = words[split + 1 :]
    return arguments


def help_of_all(groups: Mapping[str, Iterable[Command]]) -> str:
    """Every command with its summary, grouped by purpose."""
    lines = ["usage: syntony COMMAND ...", "", "`syntony COMMAND --help` shows its options and an example."]
    for title, commands in groups.items():
        lines += ["", f"{title}:", *_rows(commands)]
    return "\n".join(lines)


def help_of(verb: str, commands: Iterable[Command]) -> str:
    """The commands that begin with a verb that is not a command itself."""
    lines = [
        f"usage: syntony {verb} COMMAND ...",
        "",
        f"`syntony {verb} COMMAND --help` shows its options and an example.",
    ]
    return "\n".join([*lines, "", *_rows(commands)])


_NAMES = 18  # width of the name column in these lists


def _rows(commands: Iterable[Command]) -> Iterator[str]:
    for command in commands:
        line = f"  {' '.join(command.name):{_NAMES}} {command.summary}"
        yield from wrapped(line, more=" " * (_NAMES + 1))
