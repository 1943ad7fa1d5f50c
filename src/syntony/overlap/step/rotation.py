"""Weights that go round the ranks of `tp` while these compute with them (Luo et al., RTP, arXiv 2311.01635).

    rank r of 4    shard r    r-1    r-2    r-3  |  r+1    r+2    r+3     r
    compute       | fwd 0 | fwd 1| fwd 2| fwd 3  | bwd 3| bwd 2| bwd 1| bwd 0|
    weights         turn_1  turn_2 turn_3         `turn_2_again, turn_1_again: from rank r+1
                                      turn_3_again
    gradients                                           turn_3 turn_2 turn_1     to rank r-1

Every rank has its own sequences, and one shard of every matrix. A shard is passed on to the next rank as it came, while
the segment that needs it is computed; in the backward shards come from the other side, so that the gradient of each
follows it and ends at its owner, as the sum over all ranks. At any time a rank has its own shard, the one that is used,
and `prefetch` on their way, and as many gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

from syntony.overlap.step.graph import CommSpec, Graph, LayerSpec
from syntony.overlap.step.op import Kind, Op
from syntony.overlap.step.op_key import BACKWARD, FORWARD, OpKey


def goes_on(transfers: Sequence[CommSpec], t: int) -> bool:
    """Whether the shard that transfer t has brought is passed on to yet another rank."""
    return t + 1 < len(transfers) and transfers[t].rotates > 0 and transfers[t + 1].rotates == transfers[t].rotates + 1


def brings(layer: LayerSpec, segment: int) -> CommSpec | None:
    """The transfer that brings the weights of a segment; None: the rank has them."""
    before = layer.transfers[segment - 1] if segment else None
    return before if before is not None and before.rotates else None


def is_turn(graph: Graph, op: Op) -> bool:
    """Whether it passes on a rotating shard, or the gradient of one."""
    known = op.kind is Kind.SHIFT and bool(graph.layers) and not op.key.part
    return known and graph.layers[op.layer].transfers[op.segment].rotates > 0


def is_gradient(graph: Graph, op: Op) -> bool:
    """Whether it passes on the gradient of a rotating shard."""
    name = graph.layers[op.layer].transfers[op.segment].name if is_turn(graph, op) else ""
    return (op.key.kind, op.key.direction) == (name, BACKWARD)


class Rotation:
    """The Ops that move shards of these layers, for one device after the other.

    prefetch   shards that are on their way while another one is used
    """

    def __init__(self, layers: Sequence[LayerSpec], prefetch: int) -> None:
        self._layers, self._prefetch, self._uses = layers, prefetch, dict[str, list[OpKey]]()
        self._passed = list[OpKey]()  # gradients

    def begin(self) -> None:
        """Begins another device."""
        self._uses.clear()
        self._passed.clear()

    def used(self, key: OpKey, row: str) -> None:
        """The next Op that computes with weights; those of one `row` are computed one after the other."""
        self._uses.setdefault(row, []).append(key)

    def weights(self, i: int, m: int, s: int, way: str, row: str, device: int, made: tuple[OpKey, ...]) -> Op | None:
        """Brings the weights of a segment. `made`: the Ops of the last step that have made the rank's own."""
        spec, transfers, t = brings(self._layers[i], s), self._layers[i].transfers, s - 1
        if spec is None:
            return None
        forward, ahead = way == FORWARD, self._uses.get(row, [])[: -self._prefetch][-1:]
        passed = spec.rotates > 1 if forward else goes_on(transfers, t)
        before = transfers[t - 1 if forward else t + 1] if passed else None
        deps = list(ahead)
        if before is not None:
            deps.append(OpKey(before.name if forward else before.anew, i, m, direction=way))
        key = OpKey(spec.name if forward else spec.anew, i, m, direction=way)
        lagged = made if before is None and forward else ()
        return Op(key, Kind.SHIFT, device, spec.lane, spec.bytes, tuple(deps), lagged, i, m, t, holds=spec.bytes)

    def room(self, i: int, s: int) -> list[OpKey]:
        """What must have been passed on before a segment makes the gradient of a shard."""
        return self._passed[: -self._prefetch][-1:] if brings(self._layers[i], s) is not None else []

    def gradient(self, made: Op) -> Op | None:
        """Passes on the gradient of the shard that a segment used, once that of this rank's sequences is `made`, and
        the sum of those before has come."""
        i, m, s = made.layer, made.microbatch, made.segment
        spec, transfers = brings(self._layers[i], s), self._layers[i].transfers
        if spec is None:
            return None
        key, deps, frees = OpKey(spec.name, i, m, direction=BACKWARD), [made.key], spec.bytes
        if goes_on(transfers, s - 1):
            deps.append(OpKey(transfers[s].name, i, m, direction=BACKWARD))
            frees += spec.bytes
        if spec.rotates == 1:
            frees += spec.bytes
        self._passed.append(key)
        return Op(
            key, Kind.SHIFT, made.device, spec.lane, spec.bytes, tuple(deps), (), i, m, s - 1,
            holds=spec.bytes, frees=frees,
        )  # fmt: skip

    def last(self, i: int, m: int) -> list[OpKey]:
        """The Ops that bring the sums of gradients home to a rank's own shards of a layer."""
        return [OpKey(one.name, i, m, direction=BACKWARD) for one in self._layers[i].transfers if one.rotates == 1]
