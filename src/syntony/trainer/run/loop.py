"""Training, from top to bottom, on one rank.

text -> rank -> profile -> policy -> plan, agreed -> (resume) -> steps -> checkpoint
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from syntony._core import CommunicationError
from syntony.base.answer import show, tell_json
from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import Exchange, RankError
from syntony.overlap.layouts.memory import exchanged
from syntony.overlap.predict.estimate import estimates
from syntony.overlap.predict.simulation import simulate
from syntony.overlap.run.plan_runner import OverlapError
from syntony.overlap.step.cost import Cost
from syntony.overlap.step.plan import Plan
from syntony.trainer.config import Config
from syntony.trainer.elastic.company import Company
from syntony.trainer.parallel.mesh import Mesh
from syntony.trainer.run import text
from syntony.trainer.run.following import follow, go_home, refuse_hot
from syntony.trainer.run.measure.choosing import Search, chosen, given, wanted
from syntony.trainer.run.measure.dealing import by_speed
from syntony.trainer.run.measure.profile import cost_of, plain, profiled
from syntony.trainer.run.measure.tuning import Tuning
from syntony.trainer.run.placement import placed
from syntony.trainer.run.process import be_reproducible, keep_freed_memory
from syntony.trainer.run.progress import Line, Log, Seen
from syntony.trainer.run.rank import Rank, World
from syntony.trainer.state.checkpoint import Progress, digest, load, newest
from syntony.trainer.state.saving import Saving, forget_unfinished

Work = Callable[[Config, Mesh, World], None]


def train(config: Config, exchange: Exchange | None, work: Work | None = None, door: str = "") -> int:
    """One rank's part of the run; alone without an exchange. Raises UserError; RankError naming op and step.

    work    what to do instead of training
    door    of a run that this rank joins
    """
    be_reproducible(config.run.threads)
    keep_freed_memory()
    torch.manual_seed(config.run.seed)
    goes_on = config.elastic.copies and work in (None, train_as_json) and (door or exchange)
    if not goes_on:
        _work(config, exchange, work or _train)
        return 0
    company = Company.found(config, exchange) if exchange is not None else Company.join(config, door)
    if company is not None:  # else it has ended while this rank waited at the door
        as_json = work is train_as_json
        company.work(partial(_work, work=partial(_train, as_json=as_json, company=company)))
    return 0


def _work(config: Config, exchange: Exchange | None, work: Work) -> None:
    """Runs `work` in a torch group of the ranks."""
    with _group(config, exchange) as place:
        mesh = Mesh(config.parallel, place)
        world = World(mesh, config.run.timeout)
        try:
            with _computing_on(config.run.device):
                work(config, mesh, world)
        except OverlapError as error:
            world.abort(f"it stops: {error}")
            raise RankError(f"rank {place} stops: {error}") from error
        except (dist.DistError, CommunicationError) as error:
            world.abort(f"it stops: {error}")
            raise RankError(f"rank {place} stops, between two steps: {error}") from error


def _train(config: Config, mesh: Mesh, world: World, as_json: bool = False, company: Company | None = None) -> None:
    run, first = config.run, mesh.rank == 0
    speaks = first and not as_json
    world.agree("configuration", json.dumps(asdict(config), sort_keys=True))
    data = company.text() if company else text.read(config.data, config.model.context, bool(run.held_out))
    world.agree("text", data.digest)
    rank = Rank(config, mesh, world)
    _check_memory(config, rank)
    batch = text.Loader(data, config, mesh)
    if config.data.deal == "measured" and not config.data.shares:
        config = by_speed(rank, batch)
        rank, batch = Rank(config, mesh, world), text.Loader(data, config, mesh)
    plan, cost = _plan(config, rank, batch)
    world.agree("plan", plan.hash)
    _check_memory(config, rank, plan)
    rank.begin(plan)
    if config.overlap.follow:
        refuse_hot(rank)
    went_on = company.restore(rank) if company else None
    done, resume, resumed = went_on or 0, "", ""
    if went_on is None:
        resume = world.tell(newest(run.save)) if run.resume == "newest" else run.resume
    if resume:
        loaded = load(rank, resume)
        if loaded.progress.digest != data.digest:
            raise UserError(f"[run] resume: {resume} was trained on another text than [data] source says")
        done = loaded.progress.step
        resumed = f"resumed from {resume}: {loaded.read / 1e6:.2f} MB read, {loaded.moved / 1e6:.2f} MB moved"
    copies = company.copies(rank, cost) if company else None
    saving = Saving(rank)
    if run.save and first:
        forget_unfinished(run.save)
    estimate = estimates(plan, cost)[0].seconds if cost.measured else 0.0
    if speaks and went_on is None:
        show([_opening(config, rank, data, plan), *([resumed] if resume else [])])
    elif speaks and company:
        show([f"{company.news}; {mesh.world} go on from step {done}, {company.moved / 1e6:.1f} MB moved"])
    about = {"config": asdict(config), "text": data.digest, "plan": plan.hash, "estimate": estimate}
    log = Log(run.log if first else "", about, append=bool(resume) or went_on is not None)
    tuning = None
    if config.overlap.tune:
        chain = wanted(config.overlap.policy, config.overlap.knobs)
        assert not isinstance(chain, Search)
        tuning = Tuning(rank, chain, cost, config.overlap.tune)
    tokens = config.data.microbatches * config.data.rows * config.model.context
    lines: list[Line] = []
    seen: list[Seen] = []  # steps not reported to the other ranks yet: each report is a collective
    for step in range(done, run.steps):
        begin = time.monotonic()
        rank.interpreter.spans.clear()
        if copies:
            copies.begin(step)
        losses = rank.step(batch(step), rate(config, step), step)
        if copies:
            copies.end()
        seconds = time.monotonic() - begin
        rank.runner.records()
        exposed = sum(span.begin - span.ready for span in rank.interpreter.spans)
        seen.append(Seen(step, losses, seconds, exposed, rank.updates.norm, []))
        last = step == run.steps - 1
        if run.held_out and (last or step % run.held_out == 0):
            seen[-1] = seen[-1]._replace(held_out=rank.step(batch(None), None, step))
        saves = run.save and run.save_every and (step + 1) % run.save_every == 0 and not last
        if step % run.every == 0 or last or saves:
            lines = _lines(rank, seen, tokens, estimate)
            seen = []
            for line in lines:
                log.step(line)
            if speaks and not (saves and step % run.every):
                show([str(lines[-1])])
            saving.poll()
        turned = tuning.after(seconds) if tuning is not None and not last else None
        if turned is not None:
            rank.go_on(turned[1])
            plan, estimate = turned[1], estimates(turned[1], cost)[0].seconds
            if speaks:
                show([f"step {step:5d} · from here on {turned[0]}"])
        if config.overlap.follow and (step + 1) % config.overlap.follow == 0 and not last:
            moved = follow(rank)
            if speaks and moved:
                show([f"step {step:5d} · {moved} experts have moved to other places, by demand"])
        if saves:
            go_home(rank)
            saving.begin(run.save, Progress(step + 1, run.seed, data.digest))
        if company and not last:
            company.after(step, rank, saving.settle)
    rank.rest()
    go_home(rank)
    saved = None
    if run.save and done < run.steps:
        saving.begin(run.save, Progress(run.steps, run.seed, data.digest))
        saved = saving.settle()
        if speaks:
            show([f"saved {saved}"])
    weights = digest(rank)
    if speaks:
        show([f"weights sha256 {weights}"])
    elif first:
        ended = {"last": asdict(lines[-1]) if lines else None, "saved": saved and str(saved), "weights_sha256": weights}
        tell_json({"command": "train", "steps": run.steps, "plan": plan.hash, "estimate": estimate, **ended})
    rank.close()


train_as_json: Work = partial(_train, as_json=True)
"""Training that only prints its result, as JSON."""


def rate(config: Config, step: int) -> float:
    """Learning rate of a step: linear warm-up, then a cosine down to `final` of it."""
    optimizer, steps = config.optimizer, config.run.steps
    if step < optimizer.warmup:
        return optimizer.lr * (step + 1) / optimizer.warmup
    part = (step - optimizer.warmup) / max(1, steps - optimizer.warmup)
    return optimizer.lr * (optimizer.final + (1 - optimizer.final) * 0.5 * (1 + math.cos(math.pi * part)))


def _plan(config: Config, rank: Rank, batch: text.Loader) -> tuple[Plan, Cost]:
    """The plan, the same on all ranks, and the measured costs of its ops."""
    steps = config.overlap.profile
    cost = profiled(rank, steps, batch, config.optimizer.lr) if steps else cost_of(rank.recorded(), {}, {})
    if config.overlap.plan:
        return given(config.overlap.plan, rank), cost
    want = wanted(config.overlap.policy, config.overlap.knobs)
    return chosen(want, rank, cost, batch, config.optimizer.lr), cost


def _lines(rank: Rank, seen: list[Seen], tokens: int, estimate: float) -> list[Line]:
    """Over all ranks: the mean loss, the slowest rank's seconds, the mean of exposed ones. Collective."""
    every = [json.loads(blob) for blob in rank.world.gather(json.dumps(seen).encode())]
    emulated = rank.config.run.compute == "emulated"
    lines = []
    for of_ranks in zip(*every, strict=True):
        found = [Seen(*one) for one in of_ranks]
        slowest, standing = max(one.seconds for one in found), sum(one.exposed for one in found) / len(found)
        loss, held = _mean([one.losses for one in found]), _mean([one.held_out for one in found])
        assert loss is not None
        lines.append(Line(found[0].step, loss, held, slowest, tokens, estimate, standing, found[0].norm, emulated))
    return lines


def _mean(of_ranks: list[list[float]]) -> float | None:
    every = [loss for losses in of_ranks for loss in losses]
    return math.fsum(every) / len(every) if every else None


def _opening(config: Config, rank: Rank, data: text.Text, plan: Plan) -> str:
    count = sum(math.prod(weight.full_shape) for layer, _ in rank.parts.values() for weight in layer.weights)
    sizes = " ".join(f"{n} {getattr(config.parallel, n)}" for n in ("dp", "tp", "pp", "ep", "cp", "zero"))
    emulated = ", compute EMULATED" if config.run.compute == "emulated" else ""
    shares = " · sequences by data rank " + " ".join(map(str, config.data.shares)) if config.data.shares else ""
    differs = f"\n{config.parallel.differs}" if config.parallel.apart else ""
    return (
        f"text {len(data.training) / 1e6:.1f} MB of {data.files} files, sha256 {data.digest[:16]} · "
        f"model {count / 1e6:.2f} M parameters, {config.run.dtype}{emulated}\n"
        f"ranks {rank.mesh.world}: {sizes} · backend {config.run.backend} · policy {plan.policy}, clip {plan.clip}, "
        f"plan {plan.hash[:16]}{shares}{differs}"
    )


def _check_memory(config: Config, rank: Rank, plan: Plan | None = None) -> None:
    """Rejects what does not fit into this machine's memory: weights, gradients, optimizer state, copies of these, and
    the plan's peak (None: that of the recorded step) of activations, gathered weights and gradients before sharding."""
    sizes = config.parallel
    turns = math.ceil(math.log2(config.data.microbatches * sizes.slices // (sizes.dp * sizes.copies)))
    layout = (plan.graph.layout if plan else None) or config.layout
    every = layout.zero, layout.groups.get("dp", 1)
    lasting = 0.0
    for i, (_, flat) in (rank.parts_of(plan) if plan else rank.parts).items():
        zero, shards = (3, sizes.ep) if plan and i >= len(plan.graph.layers) else every
        updating = shards * (layout.replicas if layout.spread else 1)
        state = (1 / shards if zero >= 3 else 1) + (2 / updating if zero >= 1 else 2)
        state += 1 / sizes.secondary if sizes.secondary > 1 else 0
        state += exchanged(sizes) / (updating if zero >= 1 else 1)
        kept = 2 * 3 * (config.elastic.copies + 1) / every[1] if config.elastic.copies else 0  # versions; with memories
        lasting += 4 * flat.elements * (state + turns + (zero < 2) + kept) * sizes.copies / sizes.pp
    _refuse_above_free(rank, lasting, 0.0)  # before anything of that size is allocated
    plan = plan or replace(plain(rank.recorded()), windows={})  # a pipeline with one window for all peers can deadlock
    peak = simulate(plan, cost_of(plan.graph, {}, {})).peak
    _refuse_above_free(rank, lasting, peak.get(rank.mesh.place["pp"], 0.0))


def _refuse_above_free(rank: Rank, lasting: float, passing: float) -> None:
    local = int(os.environ.get("LOCAL_WORLD_SIZE", rank.mesh.world))
    free, need = _free(), lasting + passing
    if free and need * local > free:
        passes = f", {passing / 1e9:.1f} GB of it activations and what else comes and goes" if passing else ""
        raise UserError(
            f"this takes about {need / 1e9:.1f} GB on each of {local} ranks{passes}, and the machine has "
            f"{free / 1e9:.1f} GB free; make [model] or [data] rows smaller, shard more ([parallel] zero) or compute "
            "activations again ([parallel] recompute)"
        )


def _free() -> int:
    """Bytes that this machine can still provide; 0: unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 0


@contextmanager
def _computing_on(device: str) -> Iterator[None]:
    """Makes `device` the default for new tensors. On a GPU, local ranks take turns.

    Raises UserError if this machine has no such device.
    """
    if device == "cpu":
        yield
        return
    here = torch.accelerator.current_accelerator(check_available=True)
    if here is None or here.type != device:
        raise UserError(f"[run] device is {device}, but torch finds {here or 'none'} here, beside cpu")
    place = int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(place)
    with torch.device(device, place):
        yield


@contextmanager
def _group(config: Config, exchange: Exchange | None) -> Iterator[int]:
    """Yields this rank's number, with torch's default group formed if there are other ranks."""
    ranks = 1 if exchange is None else exchange.size
    if ranks != config.world:
        sizes = ", ".join(f"{axis} {getattr(config.parallel, axis)}" for axis in ("pp", "dp", "cp", "tp"))
        raise UserError(f"[parallel] asks for {config.world} ranks ({sizes}), but {ranks} started")
    if exchange is None or ranks == 1:
        yield 0
        return
    here = _own_address()
    wait = timedelta(seconds=config.run.timeout)
    store = dist.TCPStore(here, 0, is_master=True, timeout=wait, wait_for_workers=False) if exchange.rank == 0 else None
    (where, *_) = exchange.all_gather("store", f"{here} {store.port}".encode() if store is not None else b"")
    if store is None:
        host, port = where.decode().split()
        store = dist.TCPStore(host, int(port), timeout=wait)
    rank = placed(config.run.placement, config.parallel, exchange) if config.run.placement else exchange.rank
    dist.init_process_group(config.run.backend, store=store, rank=rank, world_size=ranks, timeout=wait)
    try:
        yield rank
    finally:
        dist.destroy_process_group()


def _own_address() -> str:
    """This host's address as seen from the host at MASTER_ADDR, even if that is gone."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    family, kind, _, _, where = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)  # looks up a route, sends nothing
        return str(probe.getsockname()[0])
