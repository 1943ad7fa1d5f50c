"""One rank of test_refusals.py: trains with a policy, with a plan from a file, and where ranks have other files.

plan_script.py FOLDER
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist

from syntony.base.command import UserError
from syntony.overlap.policies.table import policy
from syntony.trainer.config import Config, Data, Model, Overlap, Parallel, Run
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run.loop import _train
from syntony.trainer.run.measure.profile import cost_of
from syntony.trainer.run.process import be_reproducible
from syntony.trainer.run.rank import Rank, World


def main() -> None:
    be_reproducible(1)
    dist.init_process_group("syntony")
    place = dist.get_rank()
    own = Path(sys.argv[1], f"rank {place}")
    own.mkdir()
    os.chdir(own)
    Path("text.py").write_text("the quick brown fox jumps over the lazy dog\n" * 200)
    config = Config(
        Model(blocks=1, width=32, heads=2, hidden=64, context=16),
        Data(source="text.py", rows=1, microbatches=2),
        parallel=Parallel(dp=2),
        overlap=Overlap("need", profile=0),
        run=Run(steps=2),
    )
    mesh = Mesh(config.parallel, place)
    world = World(mesh, config.run.timeout)
    step = Rank(config, mesh, world).recorded()
    for name, policies in {"same.json": ("ddp", "ddp"), "other.json": ("ddp", "p3")}.items():
        policy(policies[place]).plan(step, cost_of(step, {}, {})).write(name)
    for plan in ("", "same.json", "other.json"):
        try:
            _train(replace(config, overlap=replace(config.overlap, plan=plan)), mesh, world)
        except UserError as error:
            print(f"refused: {error}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
