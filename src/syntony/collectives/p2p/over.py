"""`syntony.over(group)`: schedules on a torch ProcessGroup that is not ours, such as NCCL's, RCCL's or gloo's.

    fast = syntony.over()                                            the default group, whatever its backend
    fast.all_reduce(tensor)                                          in place
    received = fast.all_to_all(tensor, schedule="exchange.json")     a file that `syntony synth` wrote

A schedule becomes rounds of messages (synth/lowering/rounds.py), is proven as a Program is, and runs as grouped sends,
receives and sums. Without one it is the direct exchange, which has the fewest launches. Sizes are even.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from syntony.base.command import UserError
from syntony.base.wording import counted, unknown
from syntony.collectives.p2p.steps import Steps
from syntony.synth.checker import check_program
from syntony.synth.checker.proofs import proven
from syntony.synth.engines.portfolio import Portfolio
from syntony.synth.formats.loading import InvalidError, Loaded, prove, read
from syntony.synth.lowering.rounds import Rounds, rounds_of
from syntony.synth.model.program import Program
from syntony.synth.model.schedule import Schedule
from syntony.synth.model.target import CPU

Source = str | Path | Schedule | Program
_DEFAULTS = {"all_reduce": "two_shot", "reduce_scatter": "direct", "all_gather": "direct", "all_to_all": "direct"}


class P2PWork:
    """An operation that was started. `wait` returns its result, or raises what went wrong.

    On the CPU it runs on the group's one thread for such operations, in the order in which they were started. On other
    devices all of it is queued on a stream of its own, which `wait` makes the current stream wait for.
    """

    def __init__(self, future: Future[Tensor] | None, result: Tensor | None = None, stream: Any = None) -> None:
        self._future, self._result, self._stream = future, result, stream

    def wait(self) -> Tensor:
        """The result."""
        if self._future is not None:
            return self._future.result()
        if self._stream is not None:
            torch.get_device_module(self._stream.device).current_stream().wait_stream(self._stream)
        assert self._result is not None
        return self._result

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._future.done() if self._future is not None else bool(self._stream is None or self._stream.query())


class Over:
    """A group on which schedules run. All ranks make the same calls, in the same order, with the same schedules."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group: Any = group if group is not None else dist.group.WORLD
        if self.group is None:
            raise UserError("there is no default group: call init_process_group first")
        self.ranks: int = dist.get_world_size(self.group)
        self._steps: dict[Any, Steps] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._streams: dict[torch.device, Any] = {}
        self._making = threading.Lock()

    def all_reduce(
        self, tensor: Tensor, *, op: Any = dist.ReduceOp.SUM, schedule: Source | None = None, async_op: bool = False
    ) -> Any:
        """Sums in place; returns the tensor, or with `async_op` a P2PWork."""
        steps = self.steps("all_reduce", schedule, in_place=True)

        def run() -> Tensor:
            flat = tensor.contiguous().view(-1)
            steps.run(flat if steps.plan["in_place"] else flat.clone(), flat, op)
            return tensor if flat.data_ptr() == tensor.data_ptr() else tensor.copy_(flat.view_as(tensor))

        return self._started(run, tensor, async_op)

    def all_gather(self, tensor: Tensor, *, schedule: Source | None = None, async_op: bool = False) -> Any:
        """The tensors of all ranks along a new first dimension."""
        return self._moved("all_gather", tensor, (self.ranks, *tensor.shape), schedule, async_op)

    def reduce_scatter(
        self, tensor: Tensor, *, op: Any = dist.ReduceOp.SUM, schedule: Source | None = None, async_op: bool = False
    ) -> Any:
        """This rank's share of the sum; the first dimension is divided among the ranks."""
        self._require_shares(tensor)
        shape = (tensor.shape[0] // self.ranks, *tensor.shape[1:])
        return self._moved("reduce_scatter", tensor, shape, schedule, async_op, op)

    def all_to_all(self, tensor: Tensor, *, schedule: Source | None = None, async_op: bool = False) -> Any:
        """What all ranks send here; the first dimension is divided among the ranks, as in all_to_all_single."""
        self._require_shares(tensor)
        return self._moved("all_to_all", tensor, tuple(tensor.shape), schedule, async_op)

    def comm_hook(self, schedule: Source | None = None) -> Callable[[Any, Any], torch.futures.Future[Tensor]]:
        """For DDP: `model.register_comm_hook(None, syntony.over().comm_hook())` averages buckets by the schedule."""

        def hook(_: Any, bucket: Any) -> torch.futures.Future[Tensor]:
            found: torch.futures.Future[Tensor] = torch.futures.Future()
            work = self.all_reduce(bucket.buffer().div_(self.ranks), schedule=schedule, async_op=True)
            if work._future is None:
                found.set_result(work.wait())
                return found
            work._future.add_done_callback(lambda done: _pass_on(done, found))
            return found

        # DDP compares annotations with the classes themselves.
        hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]}
        return hook

    def steps(self, collective: str, schedule: Source | None = None, *, in_place: bool = False) -> Steps:
        """The proven rounds of a schedule on this group; made once. `in_place` where the schedule can. UserError."""
        key = (collective, str(schedule) if isinstance(schedule, Path) else schedule, in_place)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = Steps(rounds(collective, schedule, self.ranks, in_place).to_dict(), self.group)
        return found

    def _moved(
        self, collective: str, tensor: Tensor, shape: tuple[int, ...], schedule: Source | None, async_op: bool,
        op: Any = dist.ReduceOp.SUM,
    ) -> Any:  # fmt: skip
        steps = self.steps(collective, schedule)

        def run() -> Tensor:
            result = tensor.new_empty(shape)
            steps.run(tensor.contiguous().view(-1), result.view(-1), op)
            return result

        return self._started(run, tensor, async_op)

    def _require_shares(self, tensor: Tensor) -> None:
        if tensor.dim() == 0 or tensor.shape[0] % self.ranks:
            raise UserError(
                f"the first dimension of {tuple(tensor.shape)} cannot be divided among {counted(self.ranks, 'rank')}"
            )

    def _started(self, run: Callable[[], Tensor], tensor: Tensor, async_op: bool) -> Any:
        if not async_op:
            if self._thread is not None and tensor.device.type == "cpu":  # after what was started before
                return self._thread.submit(run).result()
            return run()
        if tensor.device.type != "cpu":
            return self._on_stream(run, tensor.device)
        with self._making:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="syntony.over")
        return P2PWork(self._thread.submit(run))

    def _on_stream(self, run: Callable[[], Tensor], device: torch.device) -> P2PWork:
        module = torch.get_device_module(device)
        stream = self._streams.setdefault(device, module.Stream(device))
        stream.wait_stream(module.current_stream())
        with module.stream(stream):
            return P2PWork(None, run(), stream)


def _pass_on(done: Future[Tensor], to: torch.futures.Future[Tensor]) -> None:
    if (error := done.exception()) is not None:
        to.set_exception(error)  # type: ignore[arg-type]  # torch's stub takes the exception for a result
    else:
        to.set_result(done.result())


def rounds(collective: str, schedule: Source | None, ranks: int, in_place: bool = False) -> Rounds:
    """The proven rounds of a schedule (a file, a Schedule, a Program, a built-in algorithm's name) for `ranks`.

    In place only if asked and where the Program can. Raises UserError: unreadable, refused, for other ranks.
    """
    program = program_of(collective, _DEFAULTS[collective] if schedule is None else schedule, ranks)
    if program.collective != collective:
        raise UserError(f"'{program.name}' is a schedule for {program.collective}, not for {collective}")
    if program.ranks != ranks:
        raise UserError(f"'{program.name}' is for {counted(program.ranks, 'rank')}, the group has {ranks}")
    made = rounds_of(program, in_place=in_place and program.in_place)
    verdict = proven(made.program())
    if not verdict:
        raise InvalidError(f"'{program.name}' in rounds: {verdict.fault}")
    return made


def program_of(collective: str, source: Source, ranks: int) -> Program:
    """The proven Program of a file, a Schedule, a Program or a built-in algorithm's name. Raises UserError."""
    if isinstance(source, str) and not Path(source).suffix:
        from syntony import _core

        known = [entry.name for entry in _core.algorithms() if collective in entry.collectives]
        if source not in known:
            raise UserError(f"{unknown('algorithm', source, known)} for {collective}; or name a schedule's file")
        return _core.build(source, collective, ranks)
    if isinstance(source, str | Path):
        loaded = read(source)
        if isinstance(loaded.content, Portfolio):
            raise UserError(f"{source}: it holds a schedule for each range of sizes; name one of their files")
        return prove(loaded, source, ranks, CPU)
    if isinstance(source, Program) and not (verdict := check_program(source)):
        raise InvalidError(f"'{source.name}': {verdict.fault}")
    return prove(Loaded(source), source.name if isinstance(source, Program) else "schedule", ranks, CPU)


def over(group: dist.ProcessGroup | None = None) -> Over:
    """A torch group (default: the default group) of any backend, on which schedules run as grouped messages."""
    return Over(group)
