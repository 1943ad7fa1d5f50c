"""As preloaded.py, and torch: seconds, each time."""

from __future__ import annotations

import contextlib
import gc

import tests.preloaded  # noqa: F401

with contextlib.suppress(ImportError):  # torch may be absent
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel

    import syntony.collectives.torch_backend.backend  # noqa: F401

    torch.set_num_threads(1)

gc.freeze()
