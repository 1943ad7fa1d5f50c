"""Kills a random rank of a run again and again, each time as soon as the one before has been replaced.

Arguments: text, folder, kills, steps, seed. Prints JSON: weights' sha256 of a run left alone and of this one; seconds
from each kill to the end of the next step, and to the end of the first step with all ranks.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import torch  # before the forks

from syntony.collectives.bootstrap.launch import Exchange, Replacing, run_ranks
from syntony.trainer.config import Config, load
from syntony.trainer.elastic.door import own_door
from syntony.trainer.run.loop import train
from tests.trainer.elastic.going_on_script import TOML


def run(config: Config, folder: Path, exchange: Exchange | None, door: str = "") -> int:
    """One rank, whose process others can find; what it says goes into the run's one file."""
    (folder / f"process-{os.getpid()}").touch()
    with (folder / "said").open("a") as said, contextlib.redirect_stdout(said):
        return train(config, exchange, None, door)


def told(folder: Path) -> Iterator[str]:
    """Lines as they are written."""
    path = folder / "said"
    while not path.exists():
        time.sleep(0.01)
    with path.open() as file:
        line = ""
        while True:
            line += file.readline()
            if line.endswith("\n"):
                yield line
                line = ""
            else:
                time.sleep(0.002)


def kill(folder: Path, kills: int, chance: random.Random, went_on: list[float], grew: list[float]) -> None:
    lines, steps = told(folder), 0
    while steps < 5:
        steps += next(lines).startswith("step ")
    for _ in range(kills):
        alive = [process for path in folder.glob("process-*") if lives(process := int(path.name.partition("-")[2]))]
        begin = time.monotonic()
        os.kill(chance.choice(sorted(alive)), signal.SIGKILL)
        seen: list[str] = []
        for line in lines:
            seen.append(line)
            if line.startswith("step ") and any("lost" in each for each in seen) and len(went_on) == len(grew):
                went_on.append(time.monotonic() - begin)
            if line.startswith("step ") and any("; 4 go on" in each for each in seen):
                grew.append(time.monotonic() - begin)
                break


def lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    text, where, kills, steps, seed = sys.argv[1:]
    folder = Path(where)
    (folder / "small.toml").write_text(TOML.format(text=text))
    torch.set_num_threads(1)
    base = [f"run.steps={steps}"]
    run(load(folder / "small.toml", [*base, "elastic.copies=0", "run.every=1000"]), folder, None)
    alone = (folder / "said").read_text().split()[-1]
    for path in (folder / "said", *folder.glob("process-*")):
        path.unlink()
    config = load(folder / "small.toml", [*base, "parallel.dp=4", "parallel.zero=3", f"elastic.door={own_door()}"])
    went_on: list[float] = []
    grew: list[float] = []
    arguments = folder, int(kills), random.Random(int(seed)), went_on, grew
    threading.Thread(target=kill, args=arguments, daemon=True).start()
    run_ranks(
        4,
        lambda exchange: run(config, folder, exchange),
        1e6,
        Replacing(int(kills), lambda _: run(config, folder, None, config.elastic.door)),
    )
    ended = (folder / "said").read_text().split()[-1]
    print(json.dumps([alone, ended, went_on, grew]), flush=True)


if __name__ == "__main__":
    main()
