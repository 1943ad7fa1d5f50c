"""The results of a probe, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syntony.base.text_table import aligned
from syntony.base.wording import counted, rate, time
from syntony.topologies import file_format
from syntony.topologies.probed.health import Finding
from syntony.topologies.probed.locality import Cluster
from syntony.topologies.probed.measurements import Measurements
from syntony.topologies.topology import Topology

_WIDEST = 16  # ranks; a larger matrix does not fit on a screen


def report(measurements: Measurements, root: Cluster, findings: Sequence[Finding], topology: Topology) -> str:
    """A page of text."""
    lines = [f"{counted(measurements.ranks, 'rank')} on {counted(len(set(measurements.hosts)), 'host')}", ""]
    if measurements.ranks <= _WIDEST:
        lines += _matrix(measurements)
    else:
        wires = ~np.eye(measurements.ranks, dtype=bool)
        for what, values in (("bandwidth", measurements.bandwidth), ("alpha", measurements.alpha)):
            low, middle, high = (float(x) for x in np.quantile(values[wires], (0, 0.5, 1)))
            text = rate if what == "bandwidth" else time
            lines.append(f"{what}: least {text(low)}, median {text(middle)}, most {text(high)}")
    lines += ["", *_clusters(measurements, root), ""]
    links = counted(len(topology.links), "link")
    switches = sum(node.kind == "switch" for node in topology.nodes)
    shared = f"{switches} switch{'es' * (switches > 1)}" if switches else "every pair of parts has a wire of its own"
    lines += [f"explained by {links}; {shared}"]
    lines += [f"SLOW: {finding.sentence}" for finding in findings] or ["health: no rank is slower than its peers"]
    return "\n".join(lines)


def as_json(
    measurements: Measurements, root: Cluster, findings: Sequence[Finding], topology: Topology
) -> dict[str, Any]:
    """The same in plain JSON types; seconds and bytes/s."""
    return {
        **measurements.to_dict(),
        "clusters": [list(cluster.ranks) for cluster in root.walk() if cluster.parts],
        "findings": [{"ranks": list(finding.ranks), "sentence": finding.sentence} for finding in findings],
        "healthy": not findings,
        "topology": file_format.to_dict(topology),
    }


def _matrix(measurements: Measurements) -> list[str]:
    """bandwidth, and alpha under it; a row is a sender."""
    rows = [("from \\ to", *(f"rank {rank}" for rank in range(measurements.ranks)))]
    for sender in range(measurements.ranks):
        for label, row, text_of in (
            (f"rank {sender}", measurements.bandwidth[sender], rate),
            ("", measurements.alpha[sender], time),
        ):
            texts = ("" if receiver == sender else text_of(float(value)) for receiver, value in enumerate(row))
            rows.append((label, *texts))
    return aligned(rows, "<" + ">" * measurements.ranks)


def _clusters(measurements: Measurements, root: Cluster) -> list[str]:
    if all(not part.parts for part in root.parts):
        return ["all ranks are equally far from each other"]
    lines = []
    for cluster in root.walk():
        if cluster is root or not cluster.parts:
            continue
        hosts = ", ".join(dict.fromkeys(measurements.hosts[rank] for rank in cluster.ranks))
        crossing = measurements.crossings[cluster.ranks]
        ranks = ", ".join(map(str, cluster.ranks))
        lines.append(f"near each other: ranks {ranks} ({hosts}); {rate(crossing.out)} out, {rate(crossing.into)} in")
    return lines
