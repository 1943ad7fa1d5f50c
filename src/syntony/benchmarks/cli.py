"""The verbs `bench` and `demo`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING

from syntony.base.answer import tell
from syntony.base.command import Command
from syntony.benchmarks.bench import options

if TYPE_CHECKING:
    from syntony.collectives.bootstrap.launch import Exchange


def bench(arguments: argparse.Namespace) -> int:
    """Exit code 1 when a result was wrong or a rank failed."""
    from syntony.collectives.bootstrap.rendezvous import work_on_ranks
    from syntony.collectives.tuner import settings

    chosen = options.read(arguments)
    settings.read(os.environ)  # a mistake in it is the user's, told before ranks start
    work: Callable[[Exchange], int]
    if chosen.device == "cuda":
        from syntony.benchmarks.cuda import session as on_gpus

        on_gpus.get_ready()
        work = partial(on_gpus.run, options=chosen)
    else:
        from syntony.benchmarks.bench import session

        _load_what_ranks_need(chosen)
        work = partial(session.run, options=chosen)
    return work_on_ranks(chosen.processes, work, chosen.timeout, chosen.timeout)


def _load_what_ranks_need(chosen: options.Options) -> None:
    """Imports once, before the fork, instead of once per rank."""
    import syntony.collectives.communicator  # noqa: F401

    if chosen.peers or not all(element.numpy_native for element in chosen.elements):
        import torch.distributed  # noqa: F401


def _configure_demo(parser: argparse.ArgumentParser) -> None:
    del parser  # it takes no arguments of its own


def _demo(arguments: argparse.Namespace) -> int:
    from syntony.benchmarks.demo.story import main

    if not arguments.json:
        return main()
    begin = time.monotonic()
    with redirect_stdout(sys.stderr):  # the story, which ranks of our own tell, too
        code = main()
    tell(arguments, {"right": code == 0, "seconds": round(time.monotonic() - begin, 1)}, [])
    return code


COMMANDS = (
    Command(
        name=("bench",),
        summary="time a collective as nccl-tests does, check every result, compare other libraries",
        example="syntony bench all_reduce -b 8 -e 64M -f 4 --ranks 2 --peers gloo",
        configure=options.configure,
        run=bench,
    ),
    Command(
        name=("demo",),
        summary="tour on one screen: detect, synthesize, prove, execute, benchmark, train",
        example="syntony demo",
        configure=_configure_demo,
        run=_demo,
    ),
)
