"""The command `train`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from syntony.base.arguments import count
from syntony.base.command import Command, FailedError, UserError
from syntony.base.outputs import add_output

if TYPE_CHECKING:
    from syntony.trainer.run.loop import Work


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="TOML file, or a bundled configuration: tiny, long, zero3")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="override a value of the file; may be repeated. parallel=auto: use the sizes of [parallel] that are "
        "predicted to be fastest on these ranks (parallel=auto:network=1e9: with 1e9 bytes/s between hosts)",
    )
    parser.add_argument(
        "--ranks", type=count, metavar="N", help="start N ranks here (default: as many as the file needs)"
    )


def _configure_train(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.add_argument("--restarts", type=count, default=0, metavar="N",
                        help="restart up to N lost ranks (needs [elastic] copies)")  # fmt: skip
    parser.add_argument("--join", default="", metavar="HOST:PORT",
                        help="join a running job as a new rank; HOST:PORT is its [elastic] door")  # fmt: skip


def _train(arguments: argparse.Namespace) -> int:
    return _start(arguments, None, arguments.restarts, arguments.join)


def _start(arguments: argparse.Namespace, work: Work | None, restarts: int = 0, door: str = "") -> int:
    from syntony.collectives.bootstrap.launch import Replacing
    from syntony.collectives.bootstrap.rendezvous import work_on_ranks
    from syntony.trainer.config import load

    automatic = [one for one in arguments.set if one.partition("=")[0].strip() == "parallel"]
    config = load(arguments.config, [one for one in arguments.set if one not in automatic])
    if automatic:
        from syntony.trainer.automatic import laid_out

        config = laid_out(config, automatic[-1], arguments.ranks)
    from syntony.trainer.elastic.door import own_door
    from syntony.trainer.run.loop import train, train_as_json

    if work is None and arguments.json:
        work = train_as_json
    if (restarts or door) and not config.elastic.copies:
        raise UserError("a run that ranks may join keeps copies of its state: --set elastic.copies=1")
    if door:
        return train(replace(config, elastic=replace(config.elastic, door=door)), None, work, door)
    replacing = None
    if config.elastic.copies and work in (None, train_as_json):
        if restarts and "RANK" in os.environ:
            raise UserError("--restarts, but another launcher has started the ranks: it is to start them anew")
        if restarts and not config.elastic.door:
            config = replace(config, elastic=replace(config.elastic, door=own_door()))
        replacing = Replacing(restarts, lambda _: train(config, None, work, config.elastic.door))
    ranks = arguments.ranks or config.world
    if ranks == 1 and "RANK" not in os.environ:
        return train(config, None, work)
    silence = 1e6  # ranks meet in their own groups, whose timeout is `run.timeout`
    try:
        code = work_on_ranks(ranks, partial(train, config, work=work), config.run.timeout, silence, replacing)
    except FailedError as failure:
        if "RANK" not in os.environ:
            raise
        print(f"syntony: {failure}", file=sys.stderr)
        code = 1
    if code and "RANK" in os.environ:  # a restarting launcher waits for our end, and torch's shutdown takes time
        sys.stdout.flush()
        os._exit(code)
    return code


def _configure_run(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.add_argument("--policies", default="serial,ddp,fifo,need", metavar="A,B+C,..",
                        help="policies to compare (default %(default)s); `syntony overlap list` lists all")  # fmt: skip
    parser.add_argument(
        "--steps", type=count, default=5, metavar="N", help="steps of each policy per round (default 5)"
    )
    parser.add_argument(
        "--rounds", type=count, default=3, metavar="N", help="rounds; the policies take turns within each (default 3)"
    )
    add_output(parser, "-o", "--output", type=str, folder=True, metavar="FOLDER",
               help="write traces: POLICY.json for Perfetto, POLICY.et")  # fmt: skip


def _run(arguments: argparse.Namespace) -> int:
    from syntony.overlap.commands.compare import split_policies
    from syntony.trainer.run.measure.choosing import wanted
    from syntony.trainer.run.measure.contest import Contest

    policies = tuple(split_policies(arguments.policies))
    for name in policies:
        wanted(name)  # rejects unknown policies before ranks start
    contest = Contest(policies, arguments.steps, arguments.rounds, arguments.output or "", arguments.json)
    return _start(arguments, contest.run)


COMMANDS = (
    Command(
        ("train",),
        "train a transformer with data, tensor, pipeline, expert and context parallelism",
        "syntony train tiny",
        _configure_train,
        _train,
    ),
    Command(
        ("overlap", "run"),
        "time policies on real training steps, beside planned times and estimates",
        "syntony overlap run tiny --set parallel.dp=2 --policies serial,ddp,fifo",
        _configure_run,
        _run,
    ),
)
