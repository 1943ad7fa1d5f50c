"""Sockets: how messages get from rank to rank if the executor uses a runtime with sockets, not the wires directly.

    stream 0 -> 2   socket a  [== m0 ==][== m2 ==] ..       messages of a stream take turns over the pair's sockets;
                    socket b  [=== m1 ===][=== m3 ===] ..   m1 may come before m0, and then waits for it

The CPU executor's TCP (csrc/core/tcp): a message leaves from a slot of its stream, so its sender continues at once
while there are slots, and a slot is free when the other end has taken its message. Streams between two ranks share
sockets, but not on equal terms with other pairs': what queues before a full link are the streams' slots, and a lossless
link serves them in turn. So links are shared fairly among streams, each socket of a stream counting as one flow.

What this leaves out: at its own card a sender serves sockets in turn, however many streams are in them. If one pair has
many streams and these are the bottleneck, the truth lies between this model and a fair share per socket: the double
binary tree on a star of four, the worst case known, is predicted a tenth too fast (`python -m
syntony.benchmarks.sim_vs_lab`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Sockets:
    """`ways[src, dst]`: for every socket from rank to rank, the ids of the links that its bytes cross."""

    ways: Mapping[tuple[int, int], tuple[tuple[int, ...], ...]]
