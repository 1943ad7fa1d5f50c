"""What stands behind `torch.distributed.init_process_group("syntony")`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives import process, proof
from csrc import _core

if TYPE_CHECKING:
    import torch.distributed as dist

    from csrc._torch import SyntonyBackend


def create_backend(options: Any, backend_options: Any = None) -> SyntonyBackend:
    """Forms the group. `options` is c10d's DistributedBackendOptions. Collective."""
    try:
        from csrc import _torch
    except ImportError as error:
        raise ImportError(
            "Syntony's torch backend is missing or was built for another torch; build it again against this one "
            f"(make build): {error}"
        ) from error
    timeout = options.timeout if backend_options is None else backend_options._timeout
    backend = _torch.create(
        process.current().capsule(),
        options.store,
        options.group_rank,
        options.group_size,
        timeout,
        options.group_id or "default",
    )
    if proof.wanted():
        proof.prove_builders(options.group_size, backend.boxes)
    return backend


def load_program(path: str | Path, group: dist.ProcessGroup | None = None) -> str:
    """Proves the schedule or program in a file and makes it available in a torch group; returns its name.

    Collective in effect: every rank must load it before one uses it. UserError when the file is refused.
    """
    import torch
    import torch.distributed as dist

    from synth.loading import load

    group = group or dist.group.WORLD
    if group is None:
        raise RuntimeError("load_program needs a group: call init_process_group first")
    backend: Any = group._get_backend(torch.device("cpu"))
    program = load(path, ranks=group.size())
    backend.add_program(program.name, _core.program_capsule(program.to_core()))
    return program.name
