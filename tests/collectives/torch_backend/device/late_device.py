"""A device that is late: its memory is the host's, but its streams do their work milliseconds after they were told to.

What does not wait for an event reads what was there before, so it stands for a GPU wherever the matter is what waits
for what. Late also is what becomes of freed memory (late/late_memory.hpp).
"""

from __future__ import annotations

import types
from pathlib import Path

import torch

NAME = "late"


def load(library: str | Path) -> None:
    """Makes `late` a device of this process, and of no other: call it after forking."""
    torch.utils.rename_privateuse1_backend(NAME)
    module = types.ModuleType(f"torch.{NAME}")
    module.__dict__.update(
        _is_in_bad_fork=lambda: False,
        _lazy_init=lambda: None,
        is_initialized=lambda: True,
        is_available=lambda: True,
        current_device=lambda: 0,
        set_device=lambda device: None,
        device_count=lambda: 1,
        synchronize=lambda device=None: torch.accelerator.synchronize(),
        manual_seed_all=lambda seed: None,
        current_stream=lambda device=None: torch.accelerator.current_stream(),
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
    )
    torch._register_device_module(NAME, module)
    torch.ops.load_library(str(library))
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)


def lateness(milliseconds: float, side: float | None = None) -> None:
    """Before each task of a stream, from now on; `side`: of streams that are not the default one."""
    torch.ops.late.lateness(int(1000 * milliseconds), int(1000 * (milliseconds if side is None else side)))
