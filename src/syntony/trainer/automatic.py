"""`--set parallel=auto`: the layout that is predicted to be the fastest for the available ranks.

Model, text, policy and microbatch size come from the configuration; the sizes of the parallelisms, sharding and the
pipeline's schedule are searched (overlap/layouts). The search does not depend on time, so every rank gets the same
result.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import fields, replace

from syntony.base.command import UserError
from syntony.overlap.layouts.search import search
from syntony.overlap.layouts.space import Candidate, Question
from syntony.overlap.predict.machine import cost_of, machine_of
from syntony.trainer.config import Config, Parallel, checked

_MOST = 12  # layouts to simulate


def laid_out(config: Config, setting: str, ranks: int | None) -> Config:
    """The configuration with [parallel] filled in. Raises UserError if no layout fits.

    setting   `parallel=auto`, or `parallel=auto:network=1.25e9,box=4e9` for a machine unlike `overlap list`'s cpu
    ranks     None: as many as the launcher has started, or as there are processors here
    """
    said, _, changes = setting.partition("=")[2].strip().partition(":")
    if said != "auto":
        raise UserError(f"--set {setting}: it must be parallel=auto, or parallel.key=value such as parallel.dp=2")
    world = int(os.environ.get("WORLD_SIZE", ranks or os.cpu_count() or 1))
    return _fastest(config, setting, world, changes)


def fewer(config: Config, ranks: int) -> Config:
    """The configuration for at most `ranks` ranks: the same parallelisms with another number of replicas of the model,
    as many as the batch can be divided among; if not even one replica fits, the layout that is predicted to be the
    fastest. Every rank gets the same result. Raises UserError if no layout fits.
    """
    given = config.parallel
    for dp in range(ranks // (given.ranks // given.dp), 0, -1):
        data = dp * given.cp
        replicas = math.gcd(given.replicas, data)
        spread = given.spread and replicas > 1
        secondary = math.gcd(given.secondary, data)
        ep = math.gcd(given.ep, data)
        sizes = replace(given, dp=dp, ep=ep, replicas=replicas, spread=spread, secondary=secondary)
        found = replace(config, parallel=sizes)
        with suppress(UserError):
            checked(found, lambda section, key: "")
            assert found.layout.ranks == sizes.ranks
            return found
    for count in range(ranks, 1, -1):
        with suppress(UserError):
            return _fastest(config, "parallel=auto", count)
    return replace(config, parallel=Parallel())


def _fastest(config: Config, setting: str, world: int, changes: str = "") -> Config:
    local = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    machine = replace(machine_of(f"cpu:{changes}"), **({} if "ranks=" in changes else {"ranks": local}))
    data, policy = config.data, config.overlap.policy
    asked = Question(
        config.model.spec,
        world,
        data.rows * data.microbatches,
        element=4,
        batches=(data.rows,),
        clip=config.layout.clip,
        box=int(machine.ranks),
    )

    def can(candidate: Candidate) -> bool:
        try:
            return checked(_with(config, candidate), lambda section, key: setting).layout == candidate.layout
        except UserError:
            return False

    plain = "fifo" if policy.partition(":")[0] == "search" else policy
    found = search(
        asked, lambda layout: cost_of(machine, layout), seconds=float("inf"), among=can, policies=(plain,), more=(),
        most=_MOST,
    )  # fmt: skip
    best = found.choices[0]
    return _with(config, Candidate(best.layout, best.batch))


def _with(config: Config, candidate: Candidate) -> Config:
    sizes = {each.name: getattr(candidate.layout, each.name) for each in fields(Parallel)}
    return replace(config, parallel=Parallel(**sizes))
