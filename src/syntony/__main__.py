"""The `syntony` command.

Exit codes: 0 done; 1 the answer is no (`verify` found a fault, `bench` found wrong results); 2 the user's mistake, told
in one sentence on stderr; 70 ours; 130 interrupted. SYNTONY_DEBUG=1 shows the traceback of whatever went wrong, and
its levels WARN, INFO and TRACE what the runtime does (csrc/core/log.hpp).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, NoReturn

import syntony
from syntony.base.command import Command, UserError, tracebacks_wanted
from syntony.commands import all_commands, commands_of, find

if TYPE_CHECKING:
    from syntony.base.supervised import Standby


class Parser(argparse.ArgumentParser):
    """An argument parser that tells a mistake in one sentence instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; `{self.prog} --help` shows what it takes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line (default: the process's own) and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words, supervised=arguments is None)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (`| head`) has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if tracebacks_wanted():
            raise
        sentence, code = _explained(error)
        print(f"syntony: {sentence}", file=sys.stderr)
        return code


def parser_of(command: Command) -> argparse.ArgumentParser:
    """The parser of one command, with its help."""
    parser = Parser(
        prog=f"syntony {' '.join(command.name)}",
        description=f"{command.summary}.",
        epilog=f"example:\n  {command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.configure(parser)
    return parser


def arguments_of(command: Command, words: list[str]) -> argparse.Namespace:
    """What `command` is told by `words`. Raises UserError with what is wrong."""
    if not command.passes_on:
        return parser_of(command).parse_args(words)
    split = words.index("--") if "--" in words else len(words)
    arguments = parser_of(command).parse_args(words[:split])
    arguments.passed_on = words[split + 1 :]
    return arguments


def _run(words: list[str], supervised: bool) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(all_commands()))
        return 0
    if words[0] in ("-V", "--version"):
        print(f"syntony {syntony.__version__}")
        return 0
    if len(words) == 2 and words[1] in ("-h", "--help"):
        try:
            group = tuple(commands_of(words[0]))
        except KeyError:
            group = ()
        if len(group) > 1 and not any(len(command.name) == 1 for command in group):
            print(_help(group))
            return 0
    command, rest = find(words)
    options = arguments_of(command, rest)
    if command.limited:
        options.standby = _standby(words, options, supervised)
    return command.run(options)


def _standby(words: list[str], options: argparse.Namespace, supervised: bool) -> Standby:
    from syntony.base.supervised import Standby, supervise

    if not supervised:
        return Standby()
    what = " ".join(takewhile(lambda word: not word.startswith("-"), words))
    return supervise(what, options.timeout, getattr(options, "memory", None))


def _help(commands: Sequence[Command]) -> str:
    width = max(len(" ".join(command.name)) for command in commands)
    lines = [f"  {' '.join(command.name):{width}}  {command.summary}" for command in commands]
    usage = "usage: syntony COMMAND ...      `syntony COMMAND --help` shows its options and an example"
    return "\n".join([usage, "", *lines])


def _explained(error: Exception) -> tuple[str, int]:
    """The sentence that tells `error` to a person, and the exit code."""
    match error:
        case UserError():
            return str(error), 2
        case OSError(filename=str(path), strerror=str(reason)):
            return f"{path}: {reason}", 2
        case OSError():
            return str(error), 2
    return f"internal error: {type(error).__name__}: {error} (SYNTONY_DEBUG=1 shows where)", 70


if __name__ == "__main__":
    sys.exit(main())
