"""What processes of forked.py need not import again: seconds, each time. Nothing of Python's in this tree."""

from __future__ import annotations

import contextlib
import os
import warnings

os.environ["OMP_NUM_THREADS"] = "1"  # torch reads it now, and a process with threads had better not fork

import numpy  # noqa: F401
import pytest  # noqa: F401

from syntony import _core  # noqa: F401

with contextlib.suppress(ImportError):  # torch may be absent
    import torch.distributed.checkpoint.state_dict
    import torch.distributed.fsdp
    import torch.distributed.pipelining
    import torch.distributed.tensor.parallel

    import syntony.collectives.torch_backend.backend  # noqa: F401

    torch.set_num_threads(1)

warnings.simplefilter("ignore")
