"""The `syntony` command.

Exit codes: 0 success; 1 a negative answer (`verify` found a fault, `bench` found wrong results) or a failed rank; 2 a
user error, explained in one sentence on stderr; 70 an internal error; 130 interrupted; 143 terminated by SIGTERM.
SYNTONY_DEBUG=1 shows the traceback of any error; the levels WARN, INFO and TRACE log what the runtime does
(csrc/core/process/log.hpp).
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import syntony
from syntony.base.answer import keep_stdout_for_answers, tell_json
from syntony.base.command import Command, FailedError, UserError, tracebacks_wanted
from syntony.base.outputs import require_outputs
from syntony.base.stopping import Stopped, stopping_by_signals
from syntony.commands import GROUPS, ROOMS, commands_of, find
from syntony.parser import help_of, help_of_all, parsed, parser_of

if TYPE_CHECKING:
    import argparse

    from syntony.base.supervised import Standby

_HELP = ("-h", "--help", "help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line (default: that of this process) and returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names that the terminal cannot display are not an error
    if arguments is None and _for_programs(words):
        keep_stdout_for_answers()
    process = os.getpid()
    new: list[Path] = []  # files created by this command
    try:
        with stopping_by_signals():
            code = _run(words, new, supervised=arguments is None)
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader (`| head`) has exited. Without this, Python complains again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    except KeyboardInterrupt as stopped:
        code = stopped.code if isinstance(stopped, Stopped) else 130
        if os.getpid() != process:  # supervised: the supervisor reports it
            return code
        kept = [str(path) for path in new if path.exists()]
        sentence = f"stopped; what there was by then is in {', '.join(kept)}" if kept else "stopped"
    except Exception as error:
        if tracebacks_wanted():
            raise
        sentence, code = _explained(error)
    _tell_failure(words, sentence, code)
    return code


def _run(words: list[str], new: list[Path], supervised: bool) -> int:
    if not words or words[0] in _HELP:
        return _help([word for word in words if word not in _HELP])
    if words[0] in ("-V", "--version"):
        print(f"syntony {syntony.__version__}")
        return 0
    if len(words) == 2 and words[1] in _HELP and _is_group(words[0]):
        return _help(words[:1])
    command, rest = find(words)
    parser = parser_of(command)
    options = parsed(parser, command, rest)
    new += require_outputs(parser, options)
    if command.limited:
        options.standby = _standby(words, options, supervised)
    return command.run(options)


def _standby(words: list[str], options: argparse.Namespace, supervised: bool) -> Standby:
    from syntony.base.supervised import Standby, supervise

    if not supervised:
        return Standby()
    what = " ".join(takewhile(lambda word: not word.startswith("-"), words))
    return supervise(what, options.timeout, getattr(options, "memory", None))


def _help(words: list[str]) -> int:
    """`syntony help`, `syntony help topo`, `syntony help topo list`."""
    if not words:
        print(help_of_all({title: _commands(verbs) for title, verbs in GROUPS.items()}))
    elif len(words) == 1 and _is_group(words[0]):
        print(help_of(words[0], commands_of(words[0])))
    else:
        print(parser_of(find(words)[0]).format_help(), end="")
    return 0


def _commands(verbs: Iterable[str]) -> list[Command]:
    return [command for verb in verbs for command in commands_of(verb)]


def _is_group(verb: str) -> bool:
    """Whether `verb` only groups commands and is not a command itself."""
    return verb in ROOMS and not any(len(command.name) == 1 for command in commands_of(verb))


def _tell_failure(words: list[str], sentence: str, code: int) -> None:
    print(f"syntony: {sentence}", file=sys.stderr)
    if _for_programs(words):
        verbs = [word for word in words[:2] if not word.startswith("-")]
        name = next((" ".join(verbs[:size]) for size in (2, 1) if _is_command(tuple(verbs[:size]))), "")
        tell_json({"command": name, "error": sentence, "code": code})


def _for_programs(words: list[str]) -> bool:
    """Whether --json belongs to the command itself and not to a command behind `--`."""
    return "--json" in takewhile(lambda word: word != "--", words)


def _is_command(name: tuple[str, ...]) -> bool:
    return bool(name) and name[0] in ROOMS and any(command.name == name for command in commands_of(name[0]))


def _explained(error: Exception) -> tuple[str, int]:
    """The message for the user, and the exit code."""
    match error:
        case UserError():
            return str(error), 2
        case FailedError():
            return str(error), 1
        case OSError(filename=str(path), strerror=str(reason)):
            return f"{path}: {reason}", 2
        case OSError():
            return str(error), 2
    return f"internal error: {type(error).__name__}: {error} (SYNTONY_DEBUG=1 shows where)", 70


if __name__ == "__main__":
    sys.exit(main())
