"""A table in which we are measured against peers: a row per collective, number of ranks and size, a ratio in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from syntony.benchmarks.runtime.measured.sweep import Choice, Make, Measured, geometric_mean, sweep
from syntony.benchmarks.tables import Part, Row


@dataclass(frozen=True)
class Rules:
    """What is asked of the ratios (the best peer's median over ours).

    least    by size in bytes: what the row's ratio must reach; 0: nothing
    overall  what their geometric mean must reach
    """

    least: Callable[[int], float]
    overall: float


def part(title: str, ours: str, peers: Sequence[str], make: Make, choice: Choice, rules: Rules, torch: bool) -> Part:
    """`torch`: all_reduce in place."""
    labels = (ours, *peers)
    medians = ((f"{label} us", max(10, len(label) + 3)) for label in labels)
    columns = (("collective", -14), ("ranks", 5), ("bytes", 9), *medians, ("x ours", 7), ("goal", 5))
    ratios: list[float] = []

    def rows() -> Iterator[Row]:
        for ranks in choice.ranks:
            for collective in choice.collectives:
                for measured in sweep(ranks, make, (collective,), choice.sizes, choice.rounds, torch):
                    yield row(measured)
        yield _overall(ratios, rules, len(columns))

    def row(measured: Measured) -> Row:
        head = (measured.collective, measured.ranks, measured.size)
        least = rules.least(measured.size)
        goal = f"{least:.2f}" if least else ""
        if measured.wrong:
            return Row((*head, *("" for _ in labels), "", goal), f"{measured.wrong} wrong elements")
        times = [measured.seconds[label] for label in labels]
        ratio = min(times[1:]) / times[0]
        ratios.append(ratio)
        cells = (*head, *(f"{1e6 * seconds:.2f}" for seconds in times), f"{ratio:.2f}", goal)
        return Row(cells, "" if ratio >= least else "slower than the goal")

    return Part(title, columns, rows)


def _overall(ratios: Sequence[float], rules: Rules, columns: int) -> Row:
    if not ratios:
        return Row(("geometric mean", *("" for _ in range(columns - 1))), "nothing was right")
    mean = geometric_mean(ratios)
    blanks = ("" for _ in range(columns - 3))
    missed = "" if mean >= rules.overall else f"less than {rules.overall:g}; the worst is {min(ratios):.2f}"
    return Row(("geometric mean", *blanks, f"{mean:.2f}", f"{rules.overall:.1f}"), missed)
