"""One rank of test_layouts.py: trains a tiny model in several layouts, one after another.

layout_script.py BACKEND CASES [STEPS]    CASES: JSON, [[name, {section: {key: value}}], ..]
Rank 0 prints name, sha256, losses.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from typing import Any

import torch
import torch.distributed as dist

from syntony.overlap.policies.orders import in_order, staggered
from syntony.overlap.policies.passes.cut import chunk
from syntony.overlap.policies.passes.cut import slice as cut_in_slices
from syntony.overlap.policies.passes.experts import move_experts, pulled, with_guests
from syntony.overlap.policies.passes.factors import factored, with_factors
from syntony.overlap.policies.passes.loop import loop
from syntony.overlap.policies.passes.motifs import FORMS, with_sums
from syntony.overlap.policies.passes.recompute import keep
from syntony.overlap.policies.passes.relayout import first_come
from syntony.overlap.policies.passes.tiles import update_by_slice
from syntony.overlap.step.cost import Cost, ring_wire
from syntony.overlap.step.graph import Graph
from syntony.overlap.step.layout import Clip
from syntony.overlap.step.op import Kind
from syntony.overlap.step.plan import Plan
from syntony.trainer.config import Config, Data, Model, Optimizer, Overlap, Parallel, Run
from syntony.trainer.parallel.context_parallel.split import positions
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run.process import be_reproducible
from syntony.trainer.run.rank import Rank, World

TINY = {"blocks": 6, "width": 32, "heads": 4, "hidden": 64, "context": 16, "vocabulary": 64}


def config_of(changes: dict[str, dict[str, Any]], backend: str = "") -> Config:
    return Config(
        model=Model(**TINY | changes.get("model", {})),
        data=Data(**{"rows": 2, "microbatches": 4} | changes.get("data", {})),
        optimizer=Optimizer(**{"lr": 1e-2, "clip_norm": 0.5} | changes.get("optimizer", {})),
        parallel=Parallel(**changes.get("parallel", {})),
        overlap=Overlap(**changes.get("overlap", {}), knobs=changes.get("chunk", {})),
        run=Run(backend=backend, seed=5),
    )


def plan_of(step: Graph, config: Config) -> Plan:
    """Ops in the order of the graph; all experts move where the policy is janus, in N groups where it is pulled:N,
    those of every other block where it is some, the first N where it is fastermoe:N, those in demand where it is
    guests:OPERATIONS PER SECOND, all of a layer or none where it is switched:SO; gathers and scatters are taken apart
    where it is loop:WAYS, updates come by slices where it is tiles:BYTES, every Nth segment is kept where it is
    kept:N, layers sum in turn in each form where it is sums:RANKS OF A BOX, those that can send factors where it is
    factors, microbatches are cut in parts where the knobs say on which lanes, and shuffled where the policy is
    interleave."""
    graph, cut = step, dict(config.overlap.knobs)
    name, _, hot = config.overlap.policy.partition(":")
    graph = move_experts(graph, int(hot or 0)) if name in ("janus", "fastermoe") else graph
    if name == "some":
        graph = move_experts(graph, layers=[i for i, layer in enumerate(graph.layers) if layer.moved][::2])
    graph = pulled(move_experts(graph), int(hot)) if name == "pulled" else graph
    if name in ("guests", "switched"):
        cost = Cost(float(hot), {lane: ring_wire(n, 2e5) for lane, n in graph.groups.items()})
        graph = with_guests(graph, cost, together=name == "switched")
    graph = update_by_slice(cut_in_slices(graph, int(hot))) if name == "tiles" else graph
    if name == "kept":
        again = sorted({(op.layer, op.segment) for op in graph if op.kind is Kind.RECOMPUTE})
        graph = keep(graph, again[:: int(hot)])
    if name == "sums":
        forms = FORMS if int(hot) > 1 else FORMS[:2]
        graph = with_sums(graph, [forms[i % len(forms)] for i in range(len(graph.layers))], int(hot))
    if name == "factors":
        graph = with_factors(graph, factored(graph))
        assert any(op.kind is Kind.REBUILD for op in graph)
    graph = loop(graph, int(hot)) if name == "loop" else graph
    graph = chunk(graph, cut["count"], cut["lanes"]) if cut else graph
    if name == "interleave":
        wires = {lane: ring_wire(ranks, 1e6) for lane, ranks in graph.groups.items()}
        graph = first_come(graph, Cost(1e8, wires), staggered(0.4))
    return Plan("in order", graph, in_order(graph), clip=Clip(config.optimizer.clip))


def trained(config: Config, rank: int, steps: int = 2) -> tuple[str, list[float]] | None:
    """sha256 of all weights after some steps, and the mean losses; on rank 0."""
    mesh = Mesh(config.parallel, rank)
    world = World(mesh, 150.0)  # however busy the machine is
    one = Rank(config, mesh, world)
    one.begin(plan_of(one.recorded(), config))
    turns = config.data.microbatches // config.parallel.dp
    here = positions(mesh, config.model.context)
    losses = []
    for step in range(steps):
        batch: list[tuple[torch.Tensor, torch.Tensor]] = []
        for turn in range(turns):
            rows = config.data.rows_at(mesh.place["dp"] * turns + turn)
            source = torch.Generator().manual_seed(1000 * step + mesh.place["dp"] * turns + turn)
            text = torch.randint(
                config.model.vocabulary, (rows, config.model.context + 1), generator=source, device="cpu"
            ).to(here.device)
            text = text.chunk(mesh.layout.batch_parts)[mesh.place["rows"]]
            pieces = (tokens.chunk(config.parallel.slices, 1) for tokens in (text[:, here], text[:, here + 1]))
            batch += zip(*pieces, strict=True)
        found = one.step(batch, config.optimizer.lr)
        losses.append((mesh.place["data"], step, found))
    one.rest()
    mine = [(name, weight, tensor.cpu().clone()) for name, weight, tensor in one.tensors() if name.count(".") == 1]
    gathered = [pickle.loads(blob) for blob in world.gather(pickle.dumps((mine, losses)))]
    one.close()
    if rank:
        return None
    wholes: dict[str, torch.Tensor] = {}
    for tensors, _ in gathered:
        for name, weight, tensor in tensors:
            whole = wholes.setdefault(name, torch.full(weight.full_shape, torch.nan, device="cpu"))
            here = whole[weight.place]
            assert torch.isnan(here).all() or torch.equal(here, tensor), f"{name} differs between ranks"
            here.copy_(tensor)
    digest = hashlib.sha256()
    for name in sorted(wholes):
        assert not torch.isnan(wholes[name]).any(), name
        digest.update(name.encode() + wholes[name].numpy().tobytes())
    means = [
        [value for _, found in gathered for _, at, values in found if at == step for value in values]
        for step in range(steps)
    ]
    return digest.hexdigest(), [sum(values) / len(values) for values in means]


def main() -> None:
    backend, cases = sys.argv[1], json.loads(sys.argv[2])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    be_reproducible(1)
    dist.init_process_group(backend)
    for name, changes in cases:
        found = trained(config_of(changes, backend), dist.get_rank(), steps)
        if found:
            print(json.dumps([name, *found]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
