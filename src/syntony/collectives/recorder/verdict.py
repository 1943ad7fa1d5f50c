"""Explains in sentences what slows a running job down: ranks that the others wait for, and wires between hosts."""

from __future__ import annotations

from collections.abc import Sequence

from syntony.collectives.recorder.records import Dump
from syntony.collectives.recorder.slow import slow_ranks
from syntony.collectives.recorder.slow_wires import slow_wires


def slow(dumps: Sequence[Dump]) -> dict[tuple[object, ...], str]:
    """One sentence per cause, keyed by what stays the same from one poll to the next.

    If all slow wires lead to or from one host, a last sentence says so: they share its NIC and cable.
    """
    several = len({group.name for dump in dumps for group in dump.groups}) > 1

    def labelled(group: str, sentence: object) -> str:
        return f"group {group}: {sentence}" if several else str(sentence)

    told: dict[tuple[object, ...], str] = {(one.group, one.rank): labelled(one.group, one) for one in slow_ranks(dumps)}
    wires = slow_wires(dumps)
    told |= {(one.group, one.source, one.destination): labelled(one.group, one) for one in wires}
    if len({one.hosts for one in wires}) > 1:
        for host in sorted(set.intersection(*(set(one.hosts) for one in wires))):
            told[(host,)] = f"all slow wires lead to or from {host}"
    return told
