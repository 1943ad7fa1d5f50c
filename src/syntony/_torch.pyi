"""The torch.distributed backend over syntony._core. Built for one version of torch."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from enum import Enum

from torch import Tensor
from torch._C._distributed_c10d import Backend

TORCH_VERSION: str
"""Of the torch that this was built for: "2.13.0"."""

class SyntonyBackend(Backend):
    class Options(Backend.Options):
        priority: str | None
        """Of the group's collectives: low, normal or high; None: what is usual for each."""

        def __init__(self, timeout: timedelta = ...) -> None: ...

    title: str
    """What torch.profiler shows before the colon of an operation's name; to be set before the first one."""

    def __init__(self, process: object, group: object, timeout: timedelta) -> None:
        """`process` is syntony._core.Process.capsule(), `group` Communicator.capsule()."""

    @staticmethod
    def reconfigurable(
        process: object, handle: str, form: Callable[[str, int, int, timedelta], object], timeout: timedelta
    ) -> SyntonyBackend:
        """A group without members before its first reconfigure() (torch 2.15). `form` meets the others: it is given a
        key that only they know, this rank, their number and a time limit, and returns Communicator.capsule()."""

    def group(self) -> object:
        """For syntony._core.Communicator.of_capsule."""

class Move(Enum):
    """What an op of a queue does (csrc/torch/queues/comm_queues.hpp)."""

    ALL_REDUCE = ...
    REDUCE_SCATTER = ...
    EXCHANGE_SUM = ...
    ALL_GATHER = ...
    ALL_TO_ALL = ...
    BROADCAST = ...
    SEND = ...
    RECV = ...

class Slot:
    """One op of a queue: `bytes` count against its queue's window; `next` starts when it has ended; wait() announces
    its end. So many `runs` of it may have been made ready and not ended."""

    def __init__(
        self,
        name: str,
        move: Move,
        bytes: int,
        peer: int = -1,
        tag: int = 0,
        next: int = -1,
        announce: bool = False,
        runs: int = 1,
    ) -> None: ...

class Order:
    """One communication queue: indices of its ops in the order of their launches; at most `window` bytes in flight (0:
    no limit)."""

    def __init__(self, name: str, backend: Backend, ops: Sequence[int], window: int = 0) -> None: ...

class Lanes:
    """All communication queues of one rank, each with two threads of its own that never need the interpreter's lock."""

    def __init__(self, slots: Sequence[Slot], orders: Sequence[Order]) -> None: ...
    def ready(
        self,
        op: int,
        input: Tensor,
        output: Tensor,
        input_rows: Sequence[int] = (),
        output_rows: Sequence[int] = (),
    ) -> None:
        """The op may start when its turn comes; its tensors must not be touched before it has ended."""
    def wait(self, op: int, patience: timedelta, behind: int = 0) -> tuple[bool, list[int]]:
        """Until the op is at rest, but for its last `behind` runs (True), announced ops have ended (they are listed),
        or `patience` is over."""
    def ended(self) -> list[int]:
        """The announced ops that have ended since the last call of this or wait()."""
    def take_records(self) -> list[tuple[int, int, int, int, int]]:
        """(op, step, made ready, launched, ended) since the last call; nanoseconds of time.monotonic_ns()."""
    def failed(self) -> tuple[int, int]:
        """The op that failed and its step, or (-1, 0)."""
    def close(self) -> None:
        """Aborts what is in flight; no thread is left."""

def square_sums(elements: Tensor) -> Tensor:
    """float64 sums of the squares of each 64 elements of a flat float32, as a tree."""

def tree_sum(output: Tensor, terms: Tensor, count: int) -> None:
    """output = the pairwise sum of `count` terms that lie one behind the other in `terms`, which is used up."""
