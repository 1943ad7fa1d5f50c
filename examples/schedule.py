"""From a network to a schedule that runs.  python examples/schedule.py"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

import syntony
from syntony.synth.formats.schedule_file import write

NETWORK, RANKS = "ring:4", 4


def run(bootstrap: syntony.LocalBootstrap, path: Path) -> None:
    with syntony.Communicator.create(bootstrap) as group:
        name = group.load(path)  # proves it again: what a file says about itself is not believed
        array = np.full(1 << 16, group.rank, np.float32)
        group.all_reduce(array, algorithm=name)
        assert (array == sum(range(RANKS))).all()


if __name__ == "__main__":
    least = syntony.bound(NETWORK, "all_reduce")
    schedule = syntony.synthesize(NETWORK, "all_reduce", size="64M", engine="forest")
    assert syntony.verify(schedule)
    print(f"at most   {float(least.throughput.algbw) / 1e9:.2f} GB/s, for any schedule")
    print(f"simulated {syntony.simulate(schedule, '64M').algbw / 1e9:.2f} GB/s at 64 MiB")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(RANKS) as threads:
        path = Path(folder) / "all_reduce.json"
        write(schedule, path)
        list(threads.map(run, syntony.LocalBootstrap.group(RANKS), [path] * RANKS))
    print(f"{RANKS} ranks have run it, with the right sums")
