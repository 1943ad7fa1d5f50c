"""BPipe: stages early in a 1f1b pipeline hold the most activations, late ones the fewest; so the early ones lend.

    device 0 of 4   F0 F1 >1 F2 F3 >3 B0 <1 F4 B1 ..      > leaves during the next task, so that it is gone
           holds    1  2     3  3     3     3  3          when the one after that begins; < arrives during the next
    device 3                    F0    B0    F1 B1 ..      task, for the one after that
           holds    0  0     1  2     3     3  2          borrowed and own activations

Device d lends to device p - 1 - d. If a message is as fast as a task, the order takes the time of 1f1b. A device of the
first half holds at most p / 2 + 1 microbatches, where 1f1b's first holds p; the others as many, or one more.

Kim et al., BPipe (ICML 2023), section 3. The choice follows Belady: those needed last leave.
"""

from __future__ import annotations

from collections.abc import Callable

from syntony.base.command import UserError
from syntony.overlap.step.pipelines.tasks import LEND, RETURN, Orders, Task, Times

Order = Callable[[int, int, int, Times], Orders]


def balanced(order: Order) -> Order:
    """The same tasks, of one chunk per device, with LEND and RETURN between those of the first half of the devices.
    Raises UserError for an odd number of devices."""

    def lending(devices: int, chunks: int, microbatches: int, times: Times) -> Orders:
        if devices > 1 and devices % 2:
            raise UserError(f"schedule bpipe pairs devices; {devices} is odd")
        most = devices // 2 + 1
        return tuple(_lending(tasks, most) for tasks in order(devices, chunks, microbatches, times))

    return lending


def _lending(tasks: tuple[Task, ...], most: int) -> tuple[Task, ...]:
    """Keeps at most `most` microbatches on the device, including those in transit and in use."""
    made = {task.microbatch: place for place, task in enumerate(tasks) if task.kind == "F"}
    used = {task.microbatch: place for place, task in enumerate(tasks) if task.kind == "B"}
    away: dict[int, range] = {}
    for place in range(len(tasks)):
        here = [m for m in made if made[m] <= place <= used[m] and place not in away.get(m, ())]
        for _ in range(len(here) - most):
            free = [m for m in here if m not in away and made[m] + 2 <= place <= used[m] - 2]
            latest = max(free, key=lambda m: used[m])
            away[latest] = range(place, used[latest] - 1)
            here.remove(latest)
    found = list[Task]()
    for place, task in enumerate(tasks):
        found += [task._replace(kind=LEND, microbatch=m) for m, gone in away.items() if gone.start == place + 1]
        found += [task._replace(kind=RETURN, microbatch=m) for m, gone in away.items() if gone.stop == place]
        found.append(task)
    return tuple(found)
