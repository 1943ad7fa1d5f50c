"""Times algorithms on a running group and checks every result.

All candidates of a size are interleaved (a few calls of one, a few of the next, and round again), so that other load
on the machine affects all of them alike. A call's time is that of its slowest rank. The lower quartile of the calls
counts: other load makes calls longer, often most of them, but never shorter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.collectives.tuner.costs import Costs, Key
from syntony.collectives.verbs import Verbs

SIZES = tuple(8 << shift for shift in range(0, 22, 2))  # 8 bytes to 8 MiB
_PERIOD = 17  # of the values: small whole numbers, so that every order of adding gives the same float
_ROUNDS = 3
_CLEARLY = 1.25  # times as long as the best: no longer a tie

_Array = NDArray[np.float32]
_Told = Callable[[str, int], None]


@dataclass(frozen=True)
class Effort:
    """`budget`: seconds for one algorithm at one size; `fewest`, `most`: timed calls, regardless of the budget.

    single     seconds of a call from which on two are enough: on wires so slow, little else disturbs them
    patience   seconds: sizes at which one call of each algorithm would take longer in all are left out
    """

    budget: float = 0.05
    fewest: int = 6
    most: int = 60
    single: float = float("inf")
    patience: float = float("inf")


@dataclass(frozen=True)
class Measured:
    """`waited`: the part of the time for which a rank was ready but had no core, maximum over ranks. `doubt`: a
    sentence if two measurements disagree about the best algorithm."""

    costs: Costs
    waited: float
    doubt: str = ""


class WrongResultError(RuntimeError):
    """An algorithm gave a wrong result."""


@dataclass(frozen=True)
class _Trial:
    """One collective of one size on this rank. `call(algorithm)` runs it; `result` must become `expected`."""

    call: Callable[[str], object]
    result: _Array
    expected: _Array


def measure(
    group: Verbs,
    candidates: Mapping[str, Sequence[str]],
    sizes: Sequence[int] = SIZES,
    effort: Effort | None = None,
    progress: _Told = lambda collective, size: None,
) -> Measured:
    """Seconds per collective, algorithm and size; the same on every rank. Collective over the group.

    `candidates`: algorithms by collective; those that cannot serve this group are skipped. `sizes` are bytes of the
    operation, rounded to whole blocks of 4-byte elements; sizes that round to the same are measured once. Raises
    WrongResultError on every rank.
    """
    costs: dict[Key, dict[int, float]] = {}
    effort = effort or Effort()
    begin, waited = time.monotonic(), _waited_for_a_core()
    for collective, algorithms in candidates.items():
        seen: set[int] = set()
        for size in sizes:
            bytes_moved, trial = _trial(group, collective, size)
            if bytes_moved in seen:
                continue
            seen.add(bytes_moved)
            progress(collective, bytes_moved)
            once = {name: _checked(group, trial, collective, name) for name in algorithms}
            found = {name: seconds for name, seconds in once.items() if seconds is not None}
            for name, seconds in found.items():
                if seconds >= effort.single:  # or it was disturbed
                    found[name] = min(seconds, *_stamps(group, trial, name, 1))
            short = [name for name, seconds in found.items() if seconds < effort.single]
            found |= zip(short, _time(group, trial, short, effort), strict=True)
            for name, seconds in found.items():
                costs.setdefault(Key(collective, name), {})[bytes_moved] = seconds
            following = next((other for other in sizes if other > size), size)
            if sum(found.values()) * following / size > effort.patience:
                break
    part = np.array([(_waited_for_a_core() - waited) / (time.monotonic() - begin)])
    group.all_reduce(part, op="max", algorithm="direct")
    return Measured(costs, float(part[0]))


def measure_until_sure(
    group: Verbs,
    candidates: Mapping[str, Sequence[str]],
    sizes: Sequence[int] = SIZES,
    most: int = 3,
    progress: _Told = lambda collective, size: None,
    once: Callable[..., Measured] = measure,
) -> Measured:
    """Repeats `measure` until two in a row agree on the best algorithms, at most `most` times. Collective.

    A point's time is the minimum of all measurements: other load makes calls longer, never shorter. `once` measures.
    """
    found = once(group, candidates, sizes, progress=progress)
    worst, before = found.waited, found.costs
    costs = {key: dict(points) for key, points in found.costs.items()}
    differ: list[str] = []
    for _ in range(most - 1):
        again = once(group, candidates, sizes, progress=progress)
        differ = disagreements(before, again.costs)
        worst, before = min(worst, again.waited), again.costs
        for key, points in again.costs.items():
            for size, seconds in points.items():
                costs[key][size] = min(costs[key].get(size, seconds), seconds)
        if not differ:
            break
    doubt = f"two measurements disagree: {'; '.join(differ[:3])}" if differ else ""
    return Measured(costs, worst, doubt)


def disagreements(one: Costs, other: Costs) -> list[str]:
    """Sentences about points where the best of one measurement is clearly not the best of the other."""
    found = []
    for collective in dict.fromkeys(key.collective for key in one):
        tables = [{key.algorithm: points for key, points in costs.items() if key.collective == collective}
                  for costs in (one, other)]  # fmt: skip
        for size in sorted({size for points in tables[0].values() for size in points}):
            best = [min((name for name in table if size in table[name]), key=lambda name: table[name][size])
                    for table in tables]  # fmt: skip
            lost = max(table[name][size] / table[mine][size]
                       for table, mine, name in zip(tables, best, reversed(best), strict=True))  # fmt: skip
            if lost > _CLEARLY:
                found.append(f"{collective} of {size} bytes: {best[0]}, then {best[1]}")
    return found


def typical(seconds: NDArray[np.float64]) -> float:
    """The lower quartile of calls' times: correct as long as a quarter of the calls was undisturbed."""
    return float(np.quantile(seconds, 0.25, method="lower"))


def calls_per_round(first: NDArray[np.float64], effort: Effort) -> int:
    """How many calls to time in a row, judging by the `first` few."""
    wanted = effort.budget / max(typical(first), 1e-9)
    return int(np.clip(wanted, effort.fewest, effort.most)) // _ROUNDS + 1


def _waited_for_a_core() -> float:
    """Seconds for which this thread was runnable while others ran; 0 if the system does not count them."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


def _checked(group: Verbs, trial: _Trial, collective: str, name: str) -> float | None:
    """Seconds of one call, on the slowest rank; None if the algorithm cannot serve this group, which it reports before
    it sends anything."""
    trial.result[:] = np.nan
    begin = time.perf_counter()
    try:
        trial.call(name)
    except ValueError:
        return None
    took = np.array([time.perf_counter() - begin])
    wrong = np.array([not np.array_equal(trial.result, trial.expected)], np.int64)
    group.all_reduce(wrong, algorithm="direct")
    if wrong[0]:
        what = f"{name} {collective} of {trial.expected.nbytes} bytes"
        raise WrongResultError(f"{what} gave a wrong result on {wrong[0]} of {group.size} ranks")
    group.all_reduce(took, op="max", algorithm="direct")
    return float(took[0])


def _time(group: Verbs, trial: _Trial, names: Sequence[str], effort: Effort) -> list[float]:
    """Seconds by algorithm."""
    counts = [calls_per_round(_stamps(group, trial, name, 4)[1:], effort) for name in names]
    times: list[list[NDArray[np.float64]]] = [[] for _ in names]
    for _ in range(_ROUNDS):
        for name, count, found in zip(names, counts, times, strict=True):
            found.append(_stamps(group, trial, name, count + 1)[1:])  # the first call is a warm-up
    return [typical(np.concatenate(found)) for found in times]


def _stamps(group: Verbs, trial: _Trial, name: str, calls: int) -> NDArray[np.float64]:
    """Seconds of each call, on the slowest rank."""
    clock, call = time.perf_counter, trial.call
    stamps = np.empty(calls + 1)
    group.barrier()
    stamps[0] = clock()
    for number in range(calls):
        call(name)
        stamps[number + 1] = clock()
    seconds = np.diff(stamps)
    group.all_reduce(seconds, op="max", algorithm="direct")
    return seconds


# ---- what is run -----------------------------------------------------------------------------------------------------


def _values(rank: int, elements: int) -> _Array:
    """The rank's input: `elements` periodic values."""
    return np.resize(((np.arange(_PERIOD) * 7 + rank * 5) % _PERIOD).astype(np.float32), elements)


def _total(ranks: int, elements: int) -> _Array:
    """The sum of all ranks' inputs."""
    return np.resize(np.sum([_values(rank, _PERIOD) for rank in range(ranks)], axis=0), elements).astype(np.float32)


def _trial(group: Verbs, collective: str, size: int) -> tuple[int, _Trial]:
    """The bytes of the operation, as the selection counts them, and the trial. The root is rank 0."""
    n, me = group.size, group.rank
    one_block = collective in ("all_reduce", "broadcast", "reduce")
    part = max(1, size // 4 // (1 if one_block else n))
    sent = n * part if collective in ("reduce_scatter", "scatter", "all_to_all") else part
    own = slice(me * part, (me + 1) * part)
    if collective in ("all_reduce", "reduce"):
        expected = _total(n, part)
    elif collective == "reduce_scatter":
        expected = _total(n, sent)[own]
    elif collective in ("broadcast", "scatter"):
        expected = _values(0, sent)[own if collective == "scatter" else slice(None)]
    else:
        expected = np.concatenate([_values(rank, sent)[own if sent > part else slice(None)] for rank in range(n)])
    at_root = me == 0
    if collective in (("reduce", "gather") if not at_root else ("broadcast",)):
        expected = expected[:0]  # this rank receives nothing
    result = np.empty_like(expected)
    send: _Array | None = _values(me, sent)
    method: Callable[..., Any] = getattr(group, collective)
    if collective == "broadcast":
        buffer = send if at_root else result
        return 4 * part, _Trial(lambda name: method(buffer, algorithm=name), result, expected)
    output = None if collective in ("reduce", "gather") and not at_root else result
    if collective == "scatter" and not at_root:
        send = None
    whole = part if one_block else n * part
    return 4 * whole, _Trial(lambda name: method(send, output, algorithm=name), result, expected)
