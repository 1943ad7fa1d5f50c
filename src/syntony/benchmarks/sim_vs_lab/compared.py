"""Simulated beside measured."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from syntony.benchmarks.sim_vs_lab.prediction import Prediction


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A prediction, and the seconds of every iteration."""

    prediction: Prediction
    measured: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.measured)

    @property
    def ratio(self) -> float:
        """Simulated per measured."""
        return self.prediction.seconds / self.median

    @property
    def spread(self) -> float:
        """(slowest - fastest) / median of the iterations."""
        return (max(self.measured) - min(self.measured)) / self.median
