"""The command `run`: runs a program with its gloo groups on Syntony, without changing a line."""

from __future__ import annotations

import argparse
import os
import shutil

from syntony.base.command import Command, UserError
from syntony.collectives.torch_backend.replace import VARIABLE


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.description = f"{parser.description}\nThe same as {VARIABLE}=gloo COMMAND."


def _run(arguments: argparse.Namespace) -> int:
    command: list[str] = arguments.passed_on
    if not command:
        raise UserError("`syntony run` needs a command behind --: syntony run -- torchrun --nproc-per-node 2 train.py")
    program = shutil.which(command[0])
    if program is None:
        raise UserError(f"there is no command {command[0]!r} on the PATH")
    os.execve(program, command, {**os.environ, VARIABLE: "gloo"})


COMMANDS = (
    Command(
        name=("run",),
        summary="run a program, and serve its gloo process groups with Syntony",
        example="syntony run -- torchrun --nproc-per-node 2 train.py",
        configure=_configure,
        run=_run,
        passes_on=True,
    ),
)
