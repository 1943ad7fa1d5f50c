"""`syntony.over(group)`: runs schedules on another backend's torch ProcessGroup, such as NCCL's, RCCL's or gloo's.

    fast = syntony.over()                                            the default group, whatever its backend
    fast.all_reduce(tensor)                                          in place
    received = fast.all_to_all(tensor, schedule="exchange.json")     a file that `syntony synth` wrote

A schedule becomes rounds of messages (synth/lowering/rounds.py), is proven like a Program, and runs as grouped sends,
receives and sums. The default is the direct exchange, which has the fewest launches. Blocks must have equal sizes.

If the group's backend is ours and tensors are on the CPU, Syntony's executor runs the schedule itself (own.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from syntony.base.command import UserError
from syntony.base.wording import counted, unknown
from syntony.collectives.p2p.own import OwnGroup, own_group
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
    """An operation in flight.

    On the CPU it runs on the group's one thread for such operations, in the order in which they were started; on a
    group of our backend, in its progress engine. On other devices it is queued on a separate stream.
    """

    def __init__(self, wait: Callable[[], Tensor], done: Callable[[], bool]) -> None:
        self._wait, self._done = wait, done

    def wait(self) -> Tensor:
        """Returns the result or raises the error. On devices the current stream waits, not the host."""
        return self._wait()

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._done()


class Over:
    """A group that runs schedules. All ranks make the same calls in the same order, with the same schedules.

    `messages`: always use messages, even if our own executor could run the schedule.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, *, messages: bool = False) -> None:
        self.group: Any = group if group is not None else dist.group.WORLD
        if self.group is None:
            raise UserError("there is no default group: call init_process_group first")
        self.ranks: int = dist.get_world_size(self.group)
        self._own = None if messages else own_group(self.group)
        self._steps: dict[Any, Steps] = {}
        self._loaded: dict[Any, str] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._streams: dict[torch.device, Any] = {}
        self._making = threading.Lock()

    def all_reduce(
        self, tensor: Tensor, *, op: Any = dist.ReduceOp.SUM, schedule: Source | None = None, async_op: bool = False
    ) -> Any:
        """Sums in place; returns the tensor, or a P2PWork with `async_op`."""
        whole = tensor.contiguous()
        return self._run("all_reduce", whole, whole, tensor, schedule, async_op, op)

    def all_gather(
        self, tensor: Tensor, *, output: Tensor | None = None, schedule: Source | None = None, async_op: bool = False
    ) -> Any:
        """The tensors of all ranks along a new first dimension; written to `output` if given."""
        return self._moved("all_gather", tensor, (self.ranks, *tensor.shape), output, schedule, async_op)

    def reduce_scatter(
        self,
        tensor: Tensor,
        *,
        op: Any = dist.ReduceOp.SUM,
        output: Tensor | None = None,
        schedule: Source | None = None,
        async_op: bool = False,
    ) -> Any:
        """This rank's share of the sum; the first dimension is divided among the ranks."""
        self._require_shares(tensor)
        shape = (tensor.shape[0] // self.ranks, *tensor.shape[1:])
        return self._moved("reduce_scatter", tensor, shape, output, schedule, async_op, op)

    def all_to_all(
        self, tensor: Tensor, *, output: Tensor | None = None, schedule: Source | None = None, async_op: bool = False
    ) -> Any:
        """The parts that all ranks send here; the first dimension is divided as in all_to_all_single."""
        self._require_shares(tensor)
        return self._moved("all_to_all", tensor, tuple(tensor.shape), output, schedule, async_op)

    def comm_hook(self, schedule: Source | None = None) -> Callable[[Any, Any], torch.futures.Future[Tensor]]:
        """For DDP: `model.register_comm_hook(None, syntony.over().comm_hook())` averages buckets by the schedule."""

        def hook(_: Any, bucket: Any) -> torch.futures.Future[Tensor]:
            found: torch.futures.Future[Tensor] = torch.futures.Future()
            work = self.all_reduce(bucket.buffer().div_(self.ranks), schedule=schedule, async_op=True)
            if bucket.buffer().device.type != "cpu":
                found.set_result(work.wait())
            else:
                self._in_order().submit(work.wait).add_done_callback(lambda done: _pass_on(done, found))
            return found

        # DDP compares the annotations with the classes themselves, so they must not be strings.
        hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]}
        return hook

    def steps(self, collective: str, schedule: Source | None = None, *, in_place: bool = False) -> Steps:
        """The proven rounds of a schedule on this group, cached. `in_place` if the schedule supports it. UserError."""
        key = (collective, str(schedule) if isinstance(schedule, Path) else schedule, in_place)
        found = self._steps.get(key)
        if found is None:
            found = self._steps[key] = Steps(rounds(collective, schedule, self.ranks, in_place).to_dict(), self.group)
        return found

    def _moved(
        self, collective: str, tensor: Tensor, shape: tuple[int, ...], output: Tensor | None, schedule: Source | None,
        async_op: bool, op: Any = dist.ReduceOp.SUM,
    ) -> Any:  # fmt: skip
        result = tensor.new_empty(shape) if output is None else output
        if output is not None and (
            result.numel() != prod(shape) or result.dtype != tensor.dtype or not result.is_contiguous()
        ):
            raise UserError(
                f"the output of {collective} must be contiguous, with {prod(shape)} elements of {tensor.dtype}; "
                f"it has {result.numel()} of {result.dtype}"
            )
        return self._run(collective, tensor.contiguous(), result, result, schedule, async_op, op)

    def _require_shares(self, tensor: Tensor) -> None:
        if tensor.dim() == 0 or tensor.shape[0] % self.ranks:
            raise UserError(
                f"the first dimension of {tuple(tensor.shape)} cannot be divided among {counted(self.ranks, 'rank')}"
            )

    def _run(
        self, collective: str, given: Tensor, wanted: Tensor, result: Tensor, schedule: Source | None, async_op: bool,
        op: Any,
    ) -> Any:  # fmt: skip
        """Runs contiguous tensors; copies the output from `wanted` to `result` if that is another tensor."""

        def finished() -> Tensor:
            return result if wanted is result else result.copy_(wanted)

        if self._own is not None and given.device.type == "cpu":
            algorithm = "auto" if schedule is None else self._algorithm(self._own, collective, schedule)
            work = self._own.run(collective, given, wanted, op, algorithm, async_op=async_op)
            return finished() if work is None else P2PWork(lambda: (work.wait(), finished())[1], lambda: work.done)
        steps = self.steps(collective, schedule, in_place=given is wanted)

        def run() -> Tensor:
            flat = given.view(-1)
            alone = given is wanted and not steps.plan["in_place"]
            steps.run(flat.clone() if alone else flat, flat if given is wanted else wanted.view(-1), op)
            return finished()

        if given.device.type != "cpu":
            return self._on_stream(run, given.device) if async_op else run()
        if async_op:
            future = self._in_order().submit(run)
            return P2PWork(future.result, future.done)
        # Runs after the operations already started.
        return run() if self._thread is None else self._thread.submit(run).result()

    def _algorithm(self, own: OwnGroup, collective: str, schedule: Source) -> str:
        """Our executor's name for the schedule, which is proven and loaded once."""
        key = (collective, str(schedule) if isinstance(schedule, Path) else schedule)
        found = self._loaded.get(key)
        if found is None:
            found = self._loaded[key] = own.load(_program_for(collective, schedule, self.ranks))
        return found

    def _in_order(self) -> ThreadPoolExecutor:
        with self._making:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="syntony.over")
        return self._thread

    def _on_stream(self, run: Callable[[], Tensor], device: torch.device) -> P2PWork:
        module = torch.get_device_module(device)
        stream = self._streams.setdefault(device, module.Stream(device))
        stream.wait_stream(module.current_stream())
        with module.stream(stream):
            result = run()

        def wait() -> Tensor:
            module.current_stream().wait_stream(stream)
            return result

        return P2PWork(wait, lambda: bool(stream.query()))


def _pass_on(done: Future[Tensor], to: torch.futures.Future[Tensor]) -> None:
    if (error := done.exception()) is not None:
        to.set_exception(error)  # type: ignore[arg-type]  # torch's stub takes the exception for a result
    else:
        to.set_result(done.result())


def rounds(collective: str, schedule: Source | None, ranks: int, in_place: bool = False) -> Rounds:
    """The proven rounds of a schedule (a file, a Schedule, a Program, a built-in algorithm's name) for `ranks`.

    In place only if asked for and if the Program supports it. Raises UserError: unreadable, refused, or for another
    number of ranks.
    """
    program = _program_for(collective, _DEFAULTS[collective] if schedule is None else schedule, ranks)
    made = rounds_of(program, in_place=in_place and program.in_place)
    verdict = proven(made.program())
    if not verdict:
        raise InvalidError(f"'{program.name}' in rounds: {verdict.fault}")
    return made


def _program_for(collective: str, schedule: Source, ranks: int) -> Program:
    program = program_of(collective, schedule, ranks)
    if program.collective != collective:
        raise UserError(f"'{program.name}' is a schedule for {program.collective}, not for {collective}")
    if program.ranks != ranks:
        raise UserError(f"'{program.name}' is for {counted(program.ranks, 'rank')}, the group has {ranks}")
    return program


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


def over(group: dist.ProcessGroup | None = None, *, messages: bool = False) -> Over:
    """Wraps a torch group (default: the default group) of any backend to run schedules: as grouped messages, or on a
    group of our backend by Syntony's executor, unless `messages` is set."""
    return Over(group, messages=messages)
