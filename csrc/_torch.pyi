"""The torch.distributed backend over csrc._core. Built for one version of torch."""

from datetime import timedelta

from torch._C._distributed_c10d import Backend, Store

class SyntonyBackend(Backend):
    class Options(Backend.Options):
        def __init__(self, timeout: timedelta = ...) -> None: ...

    @property
    def boxes(self) -> list[list[int]]:
        """The ranks of each host."""

    def add_program(self, name: str, program: object) -> None:
        """Makes a proven Program (csrc._core.program_capsule) available by name."""

def create(process: object, store: Store, rank: int, size: int, timeout: timedelta, group: str) -> SyntonyBackend:
    """Meets the other ranks through `store`. Collective. `process` is csrc._core.Process.capsule()."""
