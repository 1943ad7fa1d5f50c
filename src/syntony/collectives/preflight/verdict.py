"""Decides which hosts to leave out, from the findings about ranks and pairs of ranks.

a finding about a rank         its host is left out
findings about pairs, as here  the fewest hosts that cover them all, the one with most pairs first:
  h0 -> h2, h1 -> h2             h2
  h0 -> h2                       one of the two; a single pair does not tell which, so the later one
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from syntony.base.wording import counted, rate
from syntony.collectives.preflight.alone import Alone
from syntony.collectives.preflight.together import Together
from syntony.topologies.probed.health import Finding

_FEWEST = 3  # ranks; among two, it cannot be decided which is slow


def of_ranks(found: Sequence[Alone], hosts: Sequence[str], tolerance: float) -> list[Finding]:
    """Ranks whose memory changes, and those that copy or compute less than `tolerance` of the median."""
    findings = []
    copying, computing = (
        float(np.median(rates)) for rates in zip(*((a.copying, a.computing) for a in found), strict=True)
    )
    for rank, alone in enumerate(found):
        problems = []
        if alone.wrong:
            problems.append(f"{counted(alone.wrong, 'word')} of its memory came back changed")
        if len(found) >= _FEWEST and alone.copying < tolerance * copying:
            problems.append(f"copies {rate(alone.copying)} in its memory, the median is {rate(float(copying))}")
        if len(found) >= _FEWEST and alone.computing < tolerance * computing:
            problems.append(f"computes at {alone.computing / computing:.0%} of the median's speed")
        if problems:
            findings.append(Finding((rank,), f"rank {rank} ({hosts[rank]}): {'; '.join(problems)}"))
    return findings


def of_results(found: Together, hosts: Sequence[str]) -> list[Finding]:
    return [
        Finding((rank,), f"rank {rank} ({hosts[rank]}): {name} gave it a wrong result")
        for name, ranks in found.wrong.items()
        for rank in ranks
    ]


def to_leave_out(findings: Sequence[Finding], hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts that account for all findings."""
    out = {hosts[finding.ranks[0]] for finding in findings if len(finding.ranks) == 1}
    order = list(dict.fromkeys(hosts))
    while True:
        ends = [{hosts[rank] for rank in finding.ranks} for finding in findings]
        left = [pair for pair in ends if not pair & out]
        if not left:
            return tuple(host for host in order if host in out)
        most = Counter(host for pair in left for host in pair)
        out.add(max(most, key=lambda host: (most[host], order.index(host))))
