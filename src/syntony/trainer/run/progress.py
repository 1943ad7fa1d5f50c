"""Progress of a training run: a line of text, and a JSON object per step.

step   120 · loss 2.381 · held out 2.410 · 41.2 ktokens/s · 199 ms · estimate 182 ms (91 %) · exposed 12 ms · norm 0.84

estimate: a lower bound for any order of this plan's ops, if each takes the time measured before the run
(overlap/predict/estimate.py); a step can be faster if its ops are.
exposed: time for which computation waited for communication, mean over ranks. A step's time is the slowest rank's.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, TextIO

from syntony.base.command import UserError


@dataclass(frozen=True)
class Line:
    """One step. Seconds; losses in nats per byte: of the step's own microbatches before its update, and (if requested)
    of held-out text after it."""

    step: int
    loss: float
    held_out: float | None
    seconds: float
    tokens: int
    estimate: float
    exposed: float
    norm: float
    emulated: bool

    def __str__(self) -> str:
        share = 100 * self.estimate / self.seconds
        parts = [
            f"step {self.step:5d}",
            "compute EMULATED" if self.emulated else f"loss {self.loss:.4f}",
            *([f"held out {self.held_out:.4f}"] if self.held_out is not None else []),
            f"{self.tokens / self.seconds / 1e3:.1f} ktokens/s",
            f"{1e3 * self.seconds:.0f} ms",
            *([f"estimate {1e3 * self.estimate:.0f} ms ({share:.0f} %)"] if self.estimate else []),
            f"exposed {1e3 * self.exposed:.0f} ms",
            *([f"norm {self.norm:.3g}"] if self.norm else []),
        ]
        return " · ".join(parts)


class Seen(NamedTuple):
    """One rank's results of a step: losses of its microbatches, seconds, the norm of the last gradients, and losses of
    its held-out microbatches."""

    step: int
    losses: list[float]
    seconds: float
    exposed: float
    norm: float
    held_out: list[float]


class Log:
    """Rank 0's, where `path` is not empty: one JSON object a line, the first about the run."""

    def __init__(self, path: str, about: dict[str, object], append: bool) -> None:
        self._file: TextIO | None = None
        if path:
            try:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                self._file = Path(path).open("a" if append else "w", encoding="utf-8")  # noqa: SIM115
            except OSError as error:
                raise UserError(f"[run] log: {path} cannot be written: {error.strerror}") from None
            self._write({"run": about})

    def step(self, line: Line) -> None:
        self._write(asdict(line))

    def _write(self, what: object) -> None:
        if self._file is not None:
            self._file.write(json.dumps(what) + "\n")
            self._file.flush()
