"""The torch.distributed backend over csrc._core. Built for one version of torch."""

from datetime import timedelta

from torch._C._distributed_c10d import Backend

class SyntonyBackend(Backend):
    class Options(Backend.Options):
        def __init__(self, timeout: timedelta = ...) -> None: ...

    def __init__(self, process: object, group: object, timeout: timedelta) -> None:
        """`process` is csrc._core.Process.capsule(), `group` Communicator.capsule()."""

    def group(self) -> object:
        """For csrc._core.Communicator.of_capsule."""
