"""Applies a policy to an existing DistributedDataParallel model: one line, with an unchanged training loop.

    overlap = ddp_hook("bytescheduler", model, optimizer)

DDP waits for all sums at the end of the backward pass; nothing overlaps with the next step. Here a bucket's sum may:

    backward      a bucket is ready: it goes to the lane, in the plan's order, perhaps in slices. DDP is told it is done
    step()        the optimizer finds no gradients. Its settings (learning rate, ..) are remembered
    next forward  before a module runs, the sums of its weights' buckets are awaited, and the optimizer updates these

The optimizer is the user's own object; it is called once per bucket, with the settings of the step that it belongs to.
The first steps are plain DDP; they are measured, and rank 0 plans for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from syntony.base.command import UserError
from syntony.overlap.policies.table import policy as policy_named
from syntony.overlap.run.plan_runner import PlanRunner
from syntony.overlap.step.cost import Cost, Linear, Wire
from syntony.overlap.step.generate import generate
from syntony.overlap.step.graph import LayerSpec
from syntony.overlap.step.layout import Clip, Layout
from syntony.overlap.step.op import Kind
from syntony.overlap.step.op_key import OpKey
from syntony.overlap.step.plan import Plan

_MEASURED = 3  # steps before the plan; the last is measured, since DDP moves its buckets in the first


def ddp_hook(
    policy: str, model: DistributedDataParallel, optimizer: Optimizer, *, clip_norm: float | None = None, **knobs: Any
) -> DdpOverlap:
    """Trains `model` under a policy (`syntony overlap list`). Collective over the model's ranks.

    clip_norm    clips the norm of all summed gradients, as clip_grad_norm_ would between backward() and step(), when
                 there are no gradients any more

    Modules must see their weights as their own parameters when they are called. Raises UserError for a policy that DDP
    cannot follow: one that shards the optimizer or the weights, or reorders autograd's computation.
    """
    return DdpOverlap(policy, model, optimizer, clip_norm, knobs)


class DdpOverlap:
    """The result of ddp_hook(): `plan` once there is one, and finish()."""

    def __init__(
        self,
        policy: str,
        model: DistributedDataParallel,
        optimizer: Optimizer,
        clip_norm: float | None,
        knobs: dict[str, Any],
    ) -> None:
        self.plan: Plan | None = None
        self._policy = policy_named(policy, **knobs)
        self._model, self._optimizer, self._clip_norm = model, optimizer, clip_norm
        self._group: dist.ProcessGroup = model.process_group
        self._lane = dist.new_group(dist.get_process_group_ranks(self._group))
        self._runner: PlanRunner | None = None
        self._buckets: list[_Bucket] = []  # by DDP's index
        self._layers: list[_Bucket] = []  # in the order of their first use
        self._users: dict[nn.Module, list[_Bucket]] = {}
        self._unmade: list[_Bucket] = []  # with new gradients that the optimizer has not applied yet
        self._settings: list[dict[str, Any]] | None = None  # of the step that they belong to
        self._applying = False
        self._steps = 0
        self._marks: list[tuple[object, float]] = []  # a measured step: modules called, buckets ready
        for module in model.modules():
            if next(module.parameters(recurse=False), None) is not None:
                module.register_forward_pre_hook(self._before)
        model.register_forward_hook(lambda *_: self._mark("forward"))
        model.register_state_dict_pre_hook(lambda *_: self.finish())  # type: ignore[no-untyped-call]
        optimizer.register_state_dict_pre_hook(lambda *_: self.finish())
        optimizer.register_step_pre_hook(self._step)
        model.register_comm_hook(None, _untyped(self._ready))

    def finish(self) -> None:
        """Makes all pending updates, for example before reading the weights. state_dict() does it automatically."""
        if self._settings is not None:
            for bucket in list(self._unmade):
                self._update(bucket)

    def close(self) -> None:
        """finish(), and restores plain DDP."""
        self.finish()
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    # ---- where torch calls ------------------------------------------------------------------------------------------

    def _ready(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """DDP's hook: a bucket has all its gradients."""
        if self._runner is None:
            self._mark(bucket.index())
            self._note(bucket)
            work = dist.all_reduce(bucket.buffer(), group=self._group, async_op=True)
            assert work is not None
            size = self._group.size()
            return work.get_future().then(lambda done: done.value()[0].div_(size))  # type: ignore[no-any-return]
        mine = self._buckets[bucket.index()]
        if mine in self._unmade:
            raise RuntimeError(
                "backward() has been called twice without optimizer.step() between: use DDP's no_sync() to accumulate"
            )
        if not self._unmade:
            self._runner.begin_step()
        self._unmade.append(mine)
        mine.buffer, mine.gradients = bucket.buffer(), list(bucket.gradients())
        for key in self._runner.plan.parts[mine.op]:
            begin, end = self._cuts(key, mine)
            self._runner.bind(key, mine.buffer[begin:end])
        self._runner.ready(mine.op)
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(mine.buffer)
        return done

    def _step(self, optimizer: Optimizer, *_: object) -> None:
        """The optimizer's step() begins."""
        if self._applying:
            return
        if self._runner is not None and self._unmade:
            self._settings = [{key: group[key] for key in group if key != "params"} for group in optimizer.param_groups]
            for bucket in self._unmade:
                for parameter in bucket.parameters:
                    parameter.grad = None
            return
        self._steps += 1
        if self._steps == _MEASURED and self._runner is None:
            self._start()
        self._marks = []

    def _before(self, module: nn.Module, _: object) -> None:
        """A module with weights of its own is about to run."""
        self._mark(module)
        if self._settings is not None:
            for bucket in self._users.get(module, ()):
                if bucket in self._unmade:
                    self._update(bucket)

    # ---- one bucket's update ----------------------------------------------------------------------------------------

    def _update(self, bucket: _Bucket) -> None:
        assert self._runner is not None
        assert self._settings is not None
        waits = self._unmade if self._clip_norm is not None else [bucket]
        for one in list(waits):
            self._runner.wait(one.op)
            if not one.summed:
                one.buffer.div_(self._group.size())
                one.summed = True
        if self._clip_norm is not None:
            self._clip(self._clip_norm)
        for parameter, gradient in zip(bucket.parameters, bucket.gradients, strict=True):
            parameter.grad = gradient
        with self._remembered_settings():
            type(self._optimizer).step(self._optimizer)
        for parameter in bucket.parameters:
            parameter.grad = None
        bucket.summed = False
        self._unmade.remove(bucket)
        if not self._unmade:
            self._settings, self._clipped = None, False

    _clipped = False

    def _clip(self, limit: float) -> None:
        if self._clipped:
            return
        self._clipped = True
        found = {id(p): g for bucket in self._unmade for p, g in zip(bucket.parameters, bucket.gradients, strict=True)}
        gradients = [found[id(parameter)] for parameter in self._model.parameters() if id(parameter) in found]
        factor = limit / (nn.utils.get_total_norm(gradients) + 1e-6)
        if factor < 1:
            for bucket in self._unmade:
                bucket.buffer.mul_(factor)

    @contextmanager
    def _remembered_settings(self) -> Iterator[None]:
        assert self._settings is not None
        groups = self._optimizer.param_groups
        now = [{key: group[key] for key in was} for group, was in zip(groups, self._settings, strict=True)]
        self._applying = True
        try:
            for group, was in zip(groups, self._settings, strict=True):
                group.update(was)
            yield
        finally:
            for group, is_ in zip(groups, now, strict=True):
                group.update(is_)
            self._applying = False

    # ---- the plan ---------------------------------------------------------------------------------------------------

    def _mark(self, what: object) -> None:
        if self._runner is None and self._steps == _MEASURED - 1:
            self._marks.append((what, time.perf_counter()))

    def _note(self, bucket: dist.GradBucket) -> None:
        while len(self._buckets) <= bucket.index():
            self._buckets.append(_Bucket())
        mine = self._buckets[bucket.index()]
        mine.parameters, mine.buffer = list(bucket.parameters()), bucket.buffer()

    def _start(self) -> None:
        """Makes a plan from the measurements, and switches to it."""
        owner = {id(parameter): bucket for bucket in self._buckets for parameter in bucket.parameters}
        for module in self._model.modules():
            used = [owner[id(one)] for one in module.parameters(recurse=False) if id(one) in owner]
            self._users[module] = list(dict.fromkeys(used))
        said: list[Any] = [None, None]  # the plan's text, or why there is none
        self._layers = self._used_in_order()
        wire = self._wire()
        if self._group.rank() == 0:
            try:
                said[0] = self._planned(wire).text
            except UserError as error:
                said[1] = str(error)
        dist.broadcast_object_list(said, dist.get_global_rank(self._group, 0), self._group)
        if said[1] is not None:
            raise UserError(said[1])
        self.plan = Plan.from_text(said[0])
        for number, bucket in enumerate(self._layers):
            bucket.op = OpKey("reduce", number)
        self._runner = PlanRunner(self.plan, 0, {"dp": self._lane}, canonical=False)

    def _used_in_order(self) -> list[_Bucket]:
        """The buckets by their first use; the same on all ranks, since their models are equal."""
        called = [module for module, _ in self._marks if isinstance(module, nn.Module)]
        found = dict.fromkeys(bucket for module in called for bucket in self._users[module])
        return [*found, *(bucket for bucket in self._buckets if bucket not in found)]

    def _planned(self, wire: Wire) -> Plan:
        moments = dict[object, float]()
        for what, moment in self._marks:
            for thing in self._users[what] if isinstance(what, nn.Module) else (what,):
                moments.setdefault(thing, moment)
        turn = moments["forward"]
        forward, backward = [], []
        starts = [moments.get(bucket, turn) for bucket in self._layers]
        for start, end in zip(starts, [*starts[1:], turn], strict=True):
            forward.append(max(0.0, end - start))
        before = turn
        for index in range(len(self._buckets)):
            ready = moments.get(index, before)
            backward.append(max(0.0, ready - before))
            before = max(before, ready)
        layers = []
        for number, bucket in enumerate(self._layers):
            seconds = max(forward[number], 1e-9)
            back = backward[self._buckets.index(bucket)] / seconds
            layers.append(LayerSpec(f"bucket {number}", bucket.buffer.nbytes, (seconds,), backward=(back, 0.0)))
        clip = Clip.OFF if self._clip_norm is None else Clip.EXACT
        graph = generate(layers, Layout(dp=self._group.size(), clip=clip))
        plan = self._policy.plan(graph, Cost(wires={"dp": wire}))
        for op in plan.graph:
            if op.kind is Kind.BACKWARD_WEIGHT:
                raise UserError(f"policy {self._policy.name!r} computes {op.key} apart, and autograd with its layer")
            if op.kind.moves and op.kind is not Kind.ALL_REDUCE:
                raise UserError(f"policy {self._policy.name!r} needs {op.kind} of {op.key}; DDP offers all_reduce only")
            if len({piece.layer for piece in op.pieces}) > 1:
                raise UserError(
                    f"policy {self._policy.name!r} fuses buckets; DDP's bucket_cap_mb is what does that here"
                )
        return plan

    def _wire(self) -> Wire:
        """The time of an all_reduce on this group, as the slowest rank sees it."""
        most = max(bucket.buffer.nbytes for bucket in self._layers)
        seconds = []
        for elements in (1024, most // 4 + 1024):
            data, times = torch.zeros(elements), []
            for _ in range(4):
                begin = time.perf_counter()
                dist.all_reduce(data, group=self._lane)
                times.append(time.perf_counter() - begin)
            seconds.append(median(times[1:]))
        both = torch.tensor(seconds, dtype=torch.float64)
        dist.all_reduce(both, dist.ReduceOp.MAX, group=self._lane)
        small, large = both.tolist()
        beta = max(0.0, large - small) / most
        half = Linear(small / 2, beta / 2)
        return Wire({Kind.ALL_REDUCE: Linear(small, beta), Kind.REDUCE_SCATTER: half, Kind.ALL_GATHER: half})

    def _cuts(self, key: OpKey, bucket: _Bucket) -> tuple[int, int]:
        """First and last element of a planned op in the bucket's buffer."""
        assert self._runner is not None
        pieces = self._runner.plan.graph[key].pieces
        size = bucket.buffer.element_size()
        return pieces[0].begin // size, pieces[-1].end // size


class _Bucket:
    """One of DDP's buckets. `gradients` are views of `buffer`; `summed`: they are means over ranks."""

    def __init__(self) -> None:
        self.op = OpKey("reduce")
        self.parameters: list[Tensor] = []
        self.gradients: list[Tensor] = []
        self.buffer = torch.empty(0)
        self.summed = False


def _untyped(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Removes annotations, which DDP evaluates as types and would not understand."""
    return lambda state, bucket: hook(state, bucket)
