"""What `import torch` runs when Syntony is installed (entry point group `torch.backends`).

An exception here would break `import torch` for everybody on the machine, and time spent here is everybody's. So this
registers a function that makes the backend when somebody asks for it, and nothing else.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syntony._torch import SyntonyBackend


def register() -> None:
    """Makes "syntony" a name that `torch.distributed.init_process_group` understands. Never raises."""
    # torch has imported torch.distributed by now, unless it was built without it: then there is nothing to register.
    dist = sys.modules.get("torch.distributed")
    backend = getattr(dist, "Backend", None)
    if backend is None or hasattr(backend, "SYNTONY"):
        return
    try:
        backend.register_backend("syntony", create, extended_api=True, devices=["cpu", "cuda"])
        if "SYNTONY_REPLACE" in os.environ:
            from syntony.collectives.torch_backend.replace import replace_as_asked

            replace_as_asked()
    except Exception as error:  # whatever a future torch objects to, `import torch` must not fail for it
        import warnings

        warnings.warn(f"syntony could not register itself with torch.distributed: {error}", stacklevel=2)


def create(options: Any, backend_options: Any) -> SyntonyBackend:
    """The creator that torch calls in `init_process_group` and `new_group`."""
    from syntony.collectives.torch_backend.backend import create_backend

    return create_backend(options, backend_options)
