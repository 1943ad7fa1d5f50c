"""The backend behind `torch.distributed.init_process_group("syntony")`, and functions that torch's API lacks."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony import _core
from syntony.collectives.bootstrap import process
from syntony.collectives.bootstrap.bootstraps import StoreBootstrap
from syntony.collectives.communicator import Communicator
from syntony.collectives.torch_backend.extension import load

if TYPE_CHECKING:
    import torch.distributed as dist

    from syntony._torch import SyntonyBackend


def create_backend(options: Any, backend_options: Any = None) -> SyntonyBackend:
    """Forms the group. `options` is c10d's DistributedBackendOptions. Collective."""
    import torch.distributed as dist

    extension = load()

    timeout = options.timeout if backend_options is None else backend_options._timeout
    name = options.group_id or "default"

    def form(store: Any, rank: int, size: int, seconds: float, job_ranks: Sequence[int]) -> Any:
        try:
            group = Communicator.create(StoreBootstrap(store, rank, size, seconds), seconds, name, job_ranks)
            group.set_priority(getattr(backend_options, "priority", None))
        except (TimeoutError, _core.CommunicationError) as error:
            raise dist.DistBackendError(f"group {name!r} of {size} ranks: {error}") from error
        return group.capsule()

    made: SyntonyBackend
    if getattr(options, "enable_reconfigure", False):  # torch 2.15: reconfigure() will name the members

        def form_anew(key: str, rank: int, size: int, limit: timedelta) -> Any:
            return form(dist.PrefixStore(f"reconfigure/{key}", options.store), rank, size, limit.total_seconds(), ())

        handle = secrets.token_hex(16)
        made = extension.SyntonyBackend.reconfigurable(process.current().capsule(), handle, form_anew, timeout)
    else:
        ranks = options.global_ranks_in_group
        group = form(options.store, options.group_rank, options.group_size, timeout.total_seconds(), ranks)
        made = extension.SyntonyBackend(process.current().capsule(), group, timeout)
    return made


def communicator_of(group: dist.ProcessGroup | None = None) -> Communicator:
    """The Communicator under a torch group (default: the default group), with everything that only it can do.

    RuntimeError if the group's CPU backend is not Syntony's.
    """
    return Communicator(_core.Communicator.of_capsule(process.current(), _backend(group).group()))


def load_program(path: str | Path, group: dist.ProcessGroup | None = None) -> str:
    """Proves the schedule, portfolio or program in a file and makes it an algorithm of a torch group; returns its name.

    Collective in effect: every rank must load it before any rank uses it. UserError if the file is refused.
    """
    return communicator_of(group).load(path)


def shrink_group(excluded: Sequence[int] = (), group: dist.ProcessGroup | None = None) -> dist.ProcessGroup:
    """A group of the live ranks that nobody has `excluded` (ranks of `group`), even after `group` has failed.

    Like `torch.distributed.shrink_group`, which also works, but survivors find out by themselves who died, and the new
    group can train with DistributedDataParallel (torch itself registers it as gloo's, which DDP then casts to gloo's
    class). Collective over the survivors. Destroys `group` and, if it was the default group, all others.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    old: Any = group or dist.group.WORLD
    ours = old._get_backend(torch.device("cpu"))
    survivors = communicator_of(group).shrink(excluded)
    gone = set(range(old.size())) - set(survivors.members)
    devices = [torch.device(each) for each in old._device_types if old._get_backend(torch.device(each)) is ours]
    timeout = _backend(group).options._timeout
    from syntony import _torch

    backend = _torch.SyntonyBackend(process.current().capsule(), survivors.capsule(), timeout)
    found = c10d._prepare_shrink_target_group(old)
    new: Any = c10d._finalize_shrunk_group(found, gone, backend)
    custom = dist.ProcessGroup.BackendType.CUSTOM
    for device in devices:
        new._register_backend(device, custom, backend)
    new._set_default_backend(custom)
    return new  # type: ignore[no-any-return]


def _backend(group: dist.ProcessGroup | None) -> Any:
    import torch
    import torch.distributed as dist

    found = group or dist.group.WORLD
    if found is None:
        raise RuntimeError("there is no default group: call init_process_group first")
    backend: Any = found._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it
    if backend.name() != "syntony":
        raise RuntimeError(f"the group's CPU backend is {backend.name()!r}, not 'syntony'")
    return backend
