"""The verb `train`."""

from __future__ import annotations

import argparse
import os
from functools import partial

from synth.arguments import count
from topologies.command import Command


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG.toml", help="what to train, on what, and how")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="instead of what the file says; repeat"
    )
    parser.add_argument(
        "--ranks", type=count, metavar="N", help="start N ranks here (default: as many as the file asks for)"
    )


def _train(arguments: argparse.Namespace) -> int:
    from collectives.rendezvous import work_on_ranks
    from collectives.trainer.config import load

    config = load(arguments.config, arguments.set)
    from collectives.trainer.loop import train

    ranks = arguments.ranks or config.world
    if ranks == 1 and "RANK" not in os.environ:
        return train(config, None)
    silence = 1e6  # ranks meet in their own groups, whose timeout is `run.timeout`
    return work_on_ranks("train", ranks, partial(train, config), config.run.timeout, silence)


COMMANDS = (
    Command(
        ("train",),
        "train a transformer, data, tensor, pipeline, expert and context parallel",
        "syntony train collectives/trainer/configs/tiny.toml",
        _configure,
        _train,
    ),
)
