"""Tunes the knobs of a policy by a Gaussian process and expected improvement (Jones et al., 1998), as ByteScheduler
does (Peng et al., SOSP 2019, section 5): simulated in a search, or by real steps while a model is trained."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syntony.overlap.policies.policy import Policy

_Points = NDArray[np.float64]
_FIRST = 3  # initial random settings


class Bayes:
    """The settings of one policy, each proposed once: the policy's own first."""

    def __init__(self, policy: Policy, luck: random.Random) -> None:
        self._luck = luck
        every = [policy.with_knobs(**values) for values in settings(policy)]
        self._choices = [policy, *(one for one in every if one.values != policy.values)]
        axes = [(name, sorted({one.values[name] for one in self._choices})) for name in policy.knobs]
        self._points = np.array(
            [[grid.index(one.values[name]) / max(1, len(grid) - 1) for name, grid in axes] for one in self._choices]
        )
        self._known: dict[int, float] = {}
        self._asked = 0

    def pick(self) -> Policy | None:
        """The next setting to try; None if none is expected to be better than the best."""
        fresh = [number for number in range(len(self._choices)) if number not in self._known]
        measured = [number for number, value in self._known.items() if math.isfinite(value)]
        if not fresh:
            return None
        if not self._known:
            self._asked = 0
        elif len(measured) < _FIRST:
            self._asked = self._luck.choice(fresh)
        else:
            values = np.array([self._known[number] for number in measured])
            expected = improvement(self._points[measured], values, self._points[fresh])
            if expected.max() < 1e-6 * values.min():
                return None
            self._asked = fresh[int(np.argmax(expected))]
        return self._choices[self._asked]

    def tell(self, seconds: float) -> None:
        """Records the time of a step with the last pick; infinite if there is no such plan."""
        self._known[self._asked] = seconds

    @property
    def best(self) -> Policy:
        """The fastest setting tried."""
        return self._choices[min(self._known, key=lambda number: self._known[number])]


def settings(policy: Policy) -> Iterator[dict[str, Any]]:
    """All settings of the knobs' grids."""
    names = list(policy.knobs)
    for values in product(*(policy.knobs[name].grid for name in names)):
        yield dict(zip(names, values, strict=True))


def improvement(known: _Points, values: _Points, points: _Points) -> _Points:
    """The expected improvement of each point over the least known value, by a Gaussian process (squared exponential
    kernel) through the known points; coordinates in [0, 1]."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.stats import norm

    def kernel(a: _Points, b: _Points) -> _Points:
        return np.asarray(np.exp(-((a[:, None] - b[None]) ** 2).sum(axis=-1) / (2 * 0.3**2)))

    scale = float(values.std()) or 1.0
    centred = (values - values.mean()) / scale
    factor = cho_factor(kernel(known, known) + 1e-4 * np.eye(len(known)))
    across = kernel(points, known)
    mean = across @ cho_solve(factor, centred)
    spread = np.sqrt(np.maximum(1.0 - (across * cho_solve(factor, across.T).T).sum(axis=1), 1e-12))
    gain = centred.min() - mean
    return np.asarray(scale * (gain * norm.cdf(gain / spread) + spread * norm.pdf(gain / spread)))
