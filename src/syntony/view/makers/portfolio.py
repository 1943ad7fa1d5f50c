"""A portfolio: which schedule is fastest at which size, and by how much."""

from __future__ import annotations

import numpy as np

from syntony.base.wording import counted, time
from syntony.synth.bounds.throughput import bounds_of
from syntony.synth.engines.portfolio import Portfolio
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.simulation.usual_slice import usual_slice
from syntony.view.makers.network import drawing_of, witness_of
from syntony.view.models import ANOTHER, Curves, Grid, Question, Series, View
from syntony.view.wording import size_name


def view(portfolio: Portfolio, file: str, size: int) -> View:
    """Its schedules' times over size, and the one for `size`."""
    first = portfolio.entries[0].schedule
    topology, collective = first.topology, first.collective
    bounds = first.bounds or bounds_of(topology, collective)
    names = [f"{number}: {entry.schedule.engine or 'schedule'}" for number, entry in enumerate(portfolio.entries)]
    sizes = sorted(
        {*(1 << power for power in range(10, 31)), *(entry.last for entry in portfolio.entries if entry.last), size}
    )
    times = [
        [simulate(entry.schedule, one, usual_slice(entry.schedule, one)).seconds for one in sizes]
        for entry in portfolio.entries
    ]
    limit = [bounds.seconds(one) for one in sizes]
    axis, bus = np.asarray(sizes, float), float(collective.bus_factor)

    def curve(name: str, took: list[float], beyond: bool = False) -> Series:
        return Series(
            name,
            axis,
            np.asarray([one * bus / each if each else np.nan for one, each in zip(sizes, took, strict=True)]),
            beyond,
        )

    rows, begin = [], 0
    for number, entry in enumerate(portfolio.entries):
        inside = [at for at, one in enumerate(sizes) if begin <= one <= (entry.last or sizes[-1])]
        rival = [
            min((other[at] for which, other in enumerate(times) if which != number), default=np.nan) for at in inside
        ]
        gain = [other / times[number][at] for other, at in zip(rival, inside, strict=True) if other == other]
        end = "no end" if entry.last is None else size_name(entry.last)
        rows.append(
            (
                names[number],
                f"from {size_name(begin)}" if begin else "from 0",
                f"to {end}",
                str(entry.schedule.steps),
                f"{max(gain):.2f}" if gain else "-",
                f"{min(limit[at] / times[number][at] for at in inside):.1%}" if inside else "-",
            )
        )
        begin = (entry.last or 0) + 1
    chosen = portfolio.entries.index(next(e for e in portfolio.entries if e.last is None or size <= e.last))
    at = sizes.index(size)
    words, witness = witness_of(topology, collective, bounds)
    others = [(names[which], took[at]) for which, took in enumerate(times) if which != chosen]
    rival_words = ", ".join(f"{name} {time(took)}" for name, took in others) or "there is no other"
    mine = f"At {size_name(size)}, {names[chosen]} takes {time(times[chosen][at])}"
    answer = f"{mine}; {rival_words}; the bound {time(limit[at])}."
    worst = np.asarray(
        [[mine / best for mine in row] for row, best in zip(np.asarray(times).T, np.min(times, axis=0), strict=True)]
    ).T
    return View(
        f"{collective.kind} on {topology.name}, by size",
        "portfolio",
        file,
        f"{counted(len(portfolio.entries), 'schedule')}, each for the sizes at which it is simulated fastest.",
        (
            Curves(
                "bus bandwidth over size",
                ("size", "bytes"),
                ("busbw", "rate"),
                (*(curve(name, took) for name, took in zip(names, times, strict=True)), curve("bound", limit, True)),
                log_x=True,
            ),
            Curves(
                "times the fastest",
                ("size", "bytes"),
                ("time over the fastest", "ratio"),
                tuple(Series(name, axis, row) for name, row in zip(names, worst, strict=True)),
                log_x=True,
                log_y=True,
                words="1 is the fastest schedule at that size; a schedule is used where its curve is at 1.",
            ),
            Grid(
                "which schedule when",
                ("schedule", "from", "to", "steps", "gain over the next best, at most", "least share of the bound"),
                tuple(rows),
                best=(chosen,),
            ),
            drawing_of(topology, "network", [witness] if witness else []),
        ),
        facts=(("schedules", str(len(rows))), ("ranks", str(collective.ranks))),
        questions=(
            Question("Which link limits?", f"The bound: {words}.", "network", {"highlight": 0 if witness else -1}),
            Question(ANOTHER, answer, "which schedule when"),
        ),
    )
