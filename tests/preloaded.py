"""What processes of forked.py need not import again, where they need no torch."""

from __future__ import annotations

import gc
import warnings

import hypothesis  # noqa: F401
import numpy  # noqa: F401
import pytest  # noqa: F401

import syntony.collectives.communicator  # noqa: F401
import tests.csrc.program_interpreter
import tests.csrc.runtime.cases
import tests.csrc.runtime.harness  # noqa: F401

warnings.simplefilter("ignore")
gc.freeze()  # or the first collection of each process looks at all of this, and copies its pages by that
