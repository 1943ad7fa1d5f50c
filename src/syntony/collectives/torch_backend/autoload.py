"""How torch finds the backend "syntony": the entry points of the installed package.

    torch 2.11 - 2.13   group `torch.backends`: `import torch` runs `register`
    torch 2.14 on       group `torch.distributed.backends`: `register_backend` runs when a program asks for the name,
                        and `import torch` only looks for SYNTONY_REPLACE

An exception here would break `import torch` for everybody on the machine, and time spent here delays everybody.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syntony._torch import SyntonyBackend


def register() -> None:
    """Makes "syntony" a name that `torch.distributed.init_process_group` understands. Never raises."""
    # torch has imported torch.distributed by now, unless built without it: then there is nothing to register.
    dist = sys.modules.get("torch.distributed")
    backend = getattr(dist, "Backend", None)
    if backend is None:
        return
    try:
        if not hasattr(backend, "_ensure_backend_registered"):
            register_backend()
        if "SYNTONY_REPLACE" in os.environ:
            from syntony.collectives.torch_backend.replace import replace_as_asked

            replace_as_asked()
    except Exception as error:  # whatever a future torch raises, `import torch` must not fail because of it
        import warnings

        warnings.warn(f"syntony could not register itself with torch.distributed: {error}", stacklevel=2)


def register_backend() -> None:
    """Registers the backend, once; torch.distributed must be imported."""
    backend = sys.modules["torch.distributed"].Backend
    if not hasattr(backend, "SYNTONY"):
        backend.register_backend("syntony", create, extended_api=True, devices=["cpu", "cuda"])


def create(options: Any, backend_options: Any) -> SyntonyBackend:
    """The creator function that torch calls in `init_process_group` and `new_group`."""
    from syntony.collectives.torch_backend.backend import create_backend

    return create_backend(options, backend_options)
