"""The checker's answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """A lane in the cycle of a deadlock: the instruction that blocks it, why, and how many of all it has done."""

    agent: int
    lane: int
    instruction: str
    why: str
    done: int
    total: int


@dataclass(frozen=True)
class Verdict:
    """Valid, or the first fault and where it is. Coordinates that do not apply are None.

    Programs have agents, lanes and instructions (positions in the lane); Schedules have agents, steps and transfers.
    `agent` is the rank for both; for a Schedule also n+k, the k-th able switch. `timeline` shows a deadlock: one line
    per lane, then the cycle of waits; `circle` are the lanes of the cycle, each waiting for the next. `proven`: what a
    valid file does, as a phrase.
    """

    valid: bool
    fault: str | None = None
    agent: int | None = None
    lane: int | None = None
    instruction: int | None = None
    step: int | None = None
    transfer: int | None = None
    chunk: int | None = None
    timeline: tuple[str, ...] = ()
    circle: tuple[Waiting, ...] = ()
    proven: str | None = None

    def __bool__(self) -> bool:
        return self.valid


class FaultError(Exception):
    """Raised inside the checker at the first fault; carries the Verdict."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.fault)
        self.verdict = verdict


def listed(numbers: list[int], limit: int = 8) -> str:
    """ "0, 3, 7" or, if there are many, "0, 1, 2, .. (17 of them)"."""
    shown = ", ".join(map(str, numbers[:limit]))
    return shown if len(numbers) <= limit else f"{shown}, .. ({len(numbers)} of them)"
