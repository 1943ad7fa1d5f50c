"""Replaces gloo in programs that ask torch.distributed for "gloo" (SYNTONY_REPLACE=gloo).

Many programs name gloo as the CPU backend and accept no other name. With the replacement, every group that would get a
ProcessGroupGloo gets Syntony's backend, and Python still sees the name "gloo":

    torch.distributed.init_process_group("cpu:gloo,cuda:nccl")
        torch makes        "cpu:syntony,cuda:nccl"
        get_backend() says "cpu:gloo,cuda:nccl"

One function of torch makes all groups, `distributed_c10d._new_process_group_helper`, from a string that names the
backend of each device. A wrapper changes the string on the way in, and on the way out enters the requested name in
torch's table of groups. In C++ such a group has the type CUSTOM, because torch casts the backend of a group of the type
GLOO to gloo's own class.

Not replaced: a `ProcessGroupGloo` that a program constructs itself.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import warnings
from typing import Any

from syntony.collectives.torch_backend.extension import load

VARIABLE = "SYNTONY_REPLACE"
_PARAMETERS = ("group_size", "group_rank", "global_ranks_in_group", "backend", "store", "group_name")
"""The first parameters of `_new_process_group_helper` in every supported version of torch."""


def replace(backend: str) -> None:
    """From now on, serves new groups that ask for `backend` ("gloo"); existing groups stay as they are.

    Call it on every rank before init_process_group, or set SYNTONY_REPLACE=gloo. A second call has no effect.
    Raises ValueError for another backend, ImportError if Syntony's torch backend cannot be loaded, and RuntimeError
    if torch has not registered the backend or its version makes groups in another way.
    """
    if backend != "gloo":
        raise ValueError(f"{VARIABLE}: Syntony can replace gloo, not {backend!r}")
    import torch
    import torch.distributed.distributed_c10d as c10d

    module: Any = c10d
    torch_helper = module._new_process_group_helper
    if hasattr(torch_helper, "__wrapped__"):
        return
    found = tuple(inspect.signature(torch_helper).parameters)
    if found[: len(_PARAMETERS)] != _PARAMETERS or not hasattr(module, "_world"):
        raise RuntimeError(
            f"{VARIABLE}=gloo does not know how torch {torch.__version__} makes its groups (known: 2.11 to 2.15); "
            'name the backend "syntony" instead'
        )
    load()  # fails here, where gloo can still serve
    if hasattr(module.Backend, "_ensure_backend_registered"):  # torch 2.14 and later load a backend by its name
        module.Backend._ensure_backend_registered("syntony")
    if not hasattr(module.Backend, "SYNTONY"):
        raise RuntimeError(f'{VARIABLE}=gloo: torch does not know the backend "syntony"; is the package installed?')

    @functools.wraps(torch_helper)
    def helper(group_size: int, group_rank: int, ranks: Any, backend: Any, *others: Any, **options: Any) -> Any:
        asked = module.BackendConfig(module.Backend(backend))
        of_device: dict[str, str] = {str(device): str(name) for device, name in asked.device_backend_map.items()}
        if "gloo" not in of_device.values():
            return torch_helper(group_size, group_rank, ranks, backend, *others, **options)
        served = {device: "syntony" if name == "gloo" else name for device, name in of_device.items()}
        alone = set(served.values()) == {"syntony"}
        name = module.Backend("syntony" if alone else ",".join(f"{device}:{name}" for device, name in served.items()))
        group, store = torch_helper(group_size, group_rank, ranks, name, *others, **options)
        if group is not module.GroupMember.NON_GROUP_MEMBER:
            if "nccl" not in served.values():  # torch prefers NCCL as the default if it is present
                group._set_default_backend(module.ProcessGroup.BackendType.CUSTOM)
            for device in (device for device, name in of_device.items() if name == "gloo"):
                made = group._get_backend(torch.device(device))
                getattr(made, "wrapped_pg", made).title = "gloo"  # for profilers too
            module._world.pg_map[group] = (backend, store)
            module._world.pg_backend_config[group] = str(asked)
            if os.environ.get("SYNTONY_DEBUG", "").upper() in ("INFO", "TRACE"):
                print(f"syntony [rank {group_rank}] INFO group {group.group_name!r} of {backend!r}: served as {name!r}",
                      file=sys.stderr, flush=True)  # fmt: skip
        return group, store

    module._new_process_group_helper = helper
    _count_in_custom_groups(module.ProcessGroup)
    _log_as_gloo(torch.nn.parallel.DistributedDataParallel)


def _count_in_custom_groups(group_class: Any) -> None:
    """ProcessGroup queries sequence numbers only for torch's own backends; this adds ours."""
    torch_number = group_class._get_sequence_number_for_group

    @functools.wraps(torch_number)
    def number(self: Any) -> int:
        import torch

        if self.name() != "custom":
            return int(torch_number(self))
        return int(self._get_backend(torch.device("cpu"))._get_sequence_number_for_group())

    group_class._get_sequence_number_for_group = number


def _log_as_gloo(ddp_class: Any) -> None:
    """DDP's log names the group's C++ type, and casts the backend of the type GLOO to gloo's class."""
    torch_log = ddp_class._get_ddp_logging_data

    @functools.wraps(torch_log)
    def log(self: Any) -> dict[str, Any]:
        import torch.distributed as dist

        told: dict[str, Any] = torch_log(self)
        if told.get("backend_name") == "custom" and dist.get_backend(self.process_group) == "gloo":
            told["backend_name"] = "gloo"
            for variable in ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT"):
                told[variable.lower()] = os.environ.get(variable, "N/A")
            told["gloo_num_threads"] = 2  # gloo's default, which readers of the log expect; our threads differ
        return told

    ddp_class._get_ddp_logging_data = log


def replace_as_asked() -> None:
    """`replace` for the backend in SYNTONY_REPLACE, at `import torch`. On failure it warns, and gloo stays."""
    asked = os.environ.get(VARIABLE, "")
    if not asked:
        return
    try:
        replace(asked)
    except (ValueError, RuntimeError, ImportError) as error:
        warnings.warn(f"syntony does not replace {asked}: {error}", stacklevel=2)
