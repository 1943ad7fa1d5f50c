"""Generated kernels compiled with the thread sanitizer, run in a process that has its library loaded (LD_PRELOAD)."""

from __future__ import annotations

import tempfile
from pathlib import Path

from syntony.synth.model.program import Program
from tests.collectives.cuda.test_generated import BUILDERS, Cases, built
from tests.csrc.runtime.cases import generator
from tests.csrc.runtime.test_programs import fused_ring, random_program


def main() -> None:
    rng = generator("generated kernels under the thread sanitizer")
    programs = [built(name, collective, 3) for name, collective in BUILDERS]
    programs += [Program(**random_program(rng, int(rng.integers(2, 5)))) for _ in range(20)]
    programs += [Program(**fused_ring(rng, 4)) for _ in range(4)]
    with tempfile.TemporaryDirectory() as folder:
        cases = Cases.of(programs, Path(folder), "float32", "-fsanitize=thread", "-g1")
        for _ in range(5):
            cases.check(rng, counts=(1, 100, 400))
    print("ok")


if __name__ == "__main__":
    main()
