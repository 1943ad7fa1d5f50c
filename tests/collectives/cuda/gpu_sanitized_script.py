"""Collectives short enough for compute-sanitizer to watch (test_gpu_sanitizer.py). The argument says whose.

It may let kernels of several streams take turns, and ranks that are kernels of their own would wait for each other in
vain. So the interpreter runs what a rank does alone; generated kernels hold all ranks of a GPU in one launch.
"""

from __future__ import annotations

import sys

from tests.csrc.runtime.cases import generator


def interpreter() -> None:
    from tests.csrc.cuda.test_gpu_sanitized import test_one_rank

    test_one_rank()


def generated() -> None:
    import cupy
    import numpy as np

    from syntony import _core
    from syntony.collectives.cuda.compiled import Compiled
    from syntony.synth.model.program import Program
    from tests.collectives.cuda.test_gpu_generated import CASES, arrays, expected

    for name, collective, ranks in CASES:
        program = Program.from_core(_core.build(name, collective, ranks, 0, None))
        for dtype, count in (("float32", 1003), ("float16", 5000)):
            rng = generator("sanitized", name, collective, dtype)
            inputs, outputs = arrays(cupy, program, count, dtype, rng)
            bound = Compiled.of(program, dtype).bind(inputs, outputs, slice_bytes=1024, seconds=300.0)
            for _ in range(2):
                bound.launch()
            cupy.cuda.get_current_stream().synchronize()
            bound.check()
            for rank in range(ranks):
                for block, found in outputs[rank].items():
                    assert np.array_equal(found.get(), expected(program, inputs, rank, block)), (name, collective, rank)


if __name__ == "__main__":
    {"interpreter": interpreter, "generated": generated}[sys.argv[1]]()
