"""One rank of a contest: `python -m syntony.benchmarks.overlap.contenders.rank WORK RESULTS`, in the lab.

Rank 0 writes RESULTS.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from syntony.benchmarks.overlap.contenders.contest import Contender, Timed, ends_of, work_of
from syntony.benchmarks.overlap.contenders.table import MAKERS
from syntony.trainer.run.process import keep_freed_memory

_TIMEOUT = timedelta(seconds=120)


def _sent() -> int:
    """Bytes that this host has sent over its wires."""
    lines = [line.split() for line in Path("/proc/self/net/dev").read_text().replace(":", " ").splitlines()[2:]]
    return sum(int(line[9]) for line in lines if line[0] != "lo")


def main(words: Sequence[str]) -> None:
    work = work_of(Path(words[0]).read_text())
    torch.set_num_threads(1)
    keep_freed_memory()  # of all contenders alike
    dist.init_process_group("syntony", timeout=_TIMEOUT)
    contenders: list[Contender] = [MAKERS[entry.maker](**entry.options) for entry in work.entries]
    seconds: list[list[float]] = [[] for _ in contenders]
    told: list[Mapping[str, Any]] = [{} for _ in contenders]
    for turn in range(1 + work.rounds):  # the first is for warming up
        for place, contender in enumerate(contenders):
            gc.collect()
            gc.disable()
            dist.barrier()
            steps, begin, before = work.steps if turn else 2, time.monotonic(), _sent()
            ends = torch.tensor(ends_of(contender, steps), dtype=torch.float64)
            said = contender.finish()
            gc.enable()
            whole, sent = (time.monotonic() - begin) / steps, (_sent() - before) / steps
            told[place] = {"whole": min(whole, told[place].get("whole", whole)), "sent": sent, **said}
            dist.all_reduce(ends, dist.ReduceOp.MAX)
            if turn:
                seconds[place] += ends.diff().tolist()
    if dist.get_rank() == 0:
        rows = zip(work.entries, seconds, told, strict=True)
        found = [Timed(entry.label, tuple(steps), said) for entry, steps, said in rows]
        Path(words[1]).write_text(json.dumps([asdict(one) for one in found]))
    dist.barrier()
    for contender in contenders:
        contender.close()
    sys.stdout.flush()
    os._exit(0)  # gloo may wait for its own threads for ever when it is torn down


if __name__ == "__main__":
    main(sys.argv[1:])
