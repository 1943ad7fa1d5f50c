"""Generated kernels against the interpreter of Programs, NumPy and the CPU's kernels, bit for bit.

They run on threads of the host (host_kernels.py); what only a GPU can show is in test_gpu_generated.py. Kernels are
compiled many to a file, since most of a compilation is headers.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syntony import _core, topologies
from syntony.collectives.buffers import UsageError
from syntony.collectives.cuda.launch import Sizes
from syntony.collectives.cuda.one_lane import one_lane
from syntony.collectives.cuda.source import ROOT, Source, arithmetic, generate
from syntony.synth.checker import check_program
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.registry import engine_named
from syntony.synth.lowering.lower import lower
from syntony.synth.lowering.passes.tape import Tape
from syntony.synth.model.collective import Collective
from syntony.synth.model.instructions import ProgramError
from syntony.synth.model.program import Program
from syntony.synth.model.target import Target
from tests.collectives.cuda.host_kernels import FLAGS, INCLUDES, Blocks, HostRun, aligned, compile_for_host
from tests.csrc.program_interpreter import blocks_of, expected_outputs, random_inputs
from tests.csrc.runtime.cases import generator
from tests.csrc.runtime.test_programs import FullMachine, fused_ring, random_program
from tests.synth.programs import one_sided_gather, one_sided_relay, relay_broadcast

BUILDERS = [(a.name, collective) for a in _core.algorithms() for collective in a.collectives]
RANKS = itertools.cycle((2, 3, 4, 3, 5))
GPU = Target("gpu", fifo_depth=4, channels=32)


def built(name: str, collective: str, ranks: int, root: int = 0) -> Program:
    return Program.from_core(_core.build(name, collective, ranks, root, None))


def as_bytes(inputs: list[dict[int, np.ndarray]]) -> list[Blocks]:
    return [{block: np.ascontiguousarray(v).view(np.uint8) for block, v in rank.items()} for rank in inputs]


def interpreted(
    program: Program, elements: list[int], inputs: list[dict[int, np.ndarray]], rng: np.random.Generator, in_place: bool
) -> list[dict[int, bytes]]:
    """What the independent interpreter makes of it, in slices of its own."""
    columns = dict(program.columns())
    machine = FullMachine(columns, elements, inputs, in_place, int(rng.choice([499, 1 << 30])))
    machine.run(rng)
    result = []
    for outputs in machine.outputs:
        joined: dict[int, bytes] = {}
        for chunk, memory in sorted(outputs.items()):
            block = int(program.chunks[chunk, 0])
            joined[block] = joined.get(block, b"") + memory.tobytes()
        result.append(joined)
    return result


@dataclass(frozen=True)
class Cases:
    """Programs, compiled in turn: as they are or in one lane, in place or apart, with messages copied or not."""

    library: ctypes.CDLL
    sources: list[Source]

    @staticmethod
    def of(programs: Iterable[Program], folder: Path, dtype: str = "float32", *flags: str) -> Cases:
        sources: list[Source] = []
        for number, program in enumerate(programs):
            form = program if number % 3 or not Tape.takes(program) else one_lane(program)
            sources.append(generate(form, dtype, in_place=bool(number % 2), copy_all=number % 5 == 4))
        by_name = {source.kernel: source for source in sources}  # a Program of one lane is its own other form
        return Cases(compile_for_host(list(by_name.values()), folder, *flags), list(by_name.values()))

    def check(self, rng: np.random.Generator, counts: tuple[int, ...] = (0, 1, 1000, 3001)) -> None:
        """Each with random sizes, slices, stripes, threads and places, launched twice on the same flags."""
        for source in self.sources:
            program = source.program
            blocks = blocks_of(program.collective, program.ranks)
            elements = [int(rng.choice(counts)) for _ in range(blocks)]
            run = HostRun(
                self.library, source, elements,
                slice_bytes=int(rng.choice([128, 1024, 1 << 16])) if max(elements) < 2000 else 1 << 13,
                stripes=int(rng.integers(1, 4)), threads=int(rng.choice([1, 1, 3])), apart=bool(rng.integers(2)),
                phase=int(rng.choice([0, 4, 16, 60])),
            )  # fmt: skip
            for _ in range(2):
                inputs = random_inputs(dict(program.columns()), elements, rng, floats=True)
                wanted = interpreted(program, elements, inputs, rng, source.in_place)
                results = run.launch(as_bytes(inputs), source.in_place)
                assert run.trouble[0] == 0, f"{source.kernel}: {program.where(int(run.trouble[0]) - 1)} waited too long"
                for rank, (found, right) in enumerate(zip(results, wanted, strict=True)):
                    for block, values in right.items():
                        assert found[block].tobytes() == values, (program.name, source.kernel, rank, block, run)


# ---- Programs -------------------------------------------------------------------------------------------------------


def test_every_builder_gives_the_interpreters_bits(tmp_path: Path) -> None:
    rng = generator("generated builders")
    programs = []
    for (name, collective), ranks in zip(BUILDERS, RANKS, strict=False):
        root = (
            ranks - 1 if collective in ("reduce", "gather") else 0
        )  # the interpreter looks at what rank 0 starts with
        programs.append(built(name, collective, min(ranks, 4) if collective == "all_to_all" else ranks, root))
    programs.append(built("two_shot", "all_reduce", 8))
    Cases.of(programs, tmp_path).check(rng)


def test_random_programs_give_the_interpreters_bits(tmp_path: Path) -> None:
    rng = generator("generated random programs")
    programs = [Program(**random_program(rng, int(rng.integers(1, 6)))) for _ in range(12)]
    Cases.of(programs, tmp_path).check(rng)


def test_fused_instructions_and_messages_of_several_slots(tmp_path: Path) -> None:
    rng = generator("generated fused rings")
    Cases.of([Program(**fused_ring(rng, ranks)) for ranks in (2, 3, 4, 5)], tmp_path).check(rng)


def test_schedules_of_engines(tmp_path: Path) -> None:
    programs = []
    for engine, topology, kind in (
        ("forest", "dgx1", "all_gather"), ("greedy", "mesh:2x3", "all_reduce"),
        ("forest", "torus:2x2", "reduce_scatter"), ("greedy", "hypercube:3", "all_to_all"),
    ):  # fmt: skip
        machine = topologies.parse(topology)
        collective = Collective.make(kind, machine.ranks)
        schedule = engine_named(engine).run(machine, collective, 1 << 20, Budget())
        programs.append(lower(schedule, GPU))
    Cases.of(programs, tmp_path).check(generator("generated engines"))


def test_one_sided_programs_reach_into_their_peers_memory(tmp_path: Path) -> None:
    programs = [one_sided_gather(), one_sided_relay(order=True)]
    sources = [generate(program, "int64") for program in programs]
    library = compile_for_host(sources, tmp_path)
    rng = generator("one-sided")
    for source in sources:
        program = source.program
        elements = [1003] * blocks_of(program.collective, program.ranks)
        run = HostRun(library, source, elements, 1024, stripes=2, threads=2, apart=True)
        for _ in range(3):
            inputs = random_inputs(dict(program.columns()), elements, rng)
            wanted = expected_outputs(dict(program.columns()), elements, inputs)
            results = run.launch(as_bytes(inputs))
            for found, right in zip(results, wanted, strict=True):
                for block, values in right.items():
                    assert np.array_equal(found[block].view(np.int64), values), program.name


def test_a_lane_per_rank_is_still_proven() -> None:
    for name, collective in BUILDERS:
        program = one_lane(built(name, collective, 4))
        assert check_program(program), (name, collective, check_program(program).fault)
        assert set(program.field("lane").tolist()) == {0}
    with pytest.raises(ProgramError, match="uses signals, one-sided instructions"):
        one_lane(one_sided_gather())


# ---- what is read where it lies -------------------------------------------------------------------------------------


def test_messages_that_nobody_overwrites_are_not_copied() -> None:
    two_shot = built("two_shot", "all_reduce", 4)
    for in_place in (False, True):
        source = generate(two_shot, "float32", in_place=in_place)
        assert (source.direct, source.connections) == (24, (0, 0, 0, 0))
        # No chunk is copied before it is summed: a reduce of four buffers is all that the first half is.
        assert source.text.count("combine_known<Format, ReduceOp::sum>(machine, KnownEnds<1, 4>") == 4
        assert source.text.count("combine_known<Plain, ReduceOp::sum>(machine, KnownEnds<1, 1>") == 12
    assert generate(two_shot, "float32", copy_all=True).direct == 0


def test_messages_that_somebody_overwrites_are_copied() -> None:
    """In place, `direct` sums into what its peers may still be reading; apart, nothing writes an input."""
    direct = built("direct", "all_reduce", 3)
    assert generate(direct, "float32", in_place=True).direct == 0
    assert generate(direct, "float32", in_place=False).direct == 6
    assert generate(relay_broadcast(), "float32").direct == 4


# ---- elements -------------------------------------------------------------------------------------------------------

PAIRS = [(dtype, op) for dtype in _core.DTYPES for op in _core.REDUCE_OPS if _core.supports(dtype, op)]


@pytest.mark.parametrize("shift", [0, 1])
def test_every_reduction_gives_the_cpus_bits(tmp_path: Path, shift: int) -> None:
    """Arbitrary bits: NaN, infinities, subnormals. Three operands, which round once; vectors and single elements."""
    rng = generator("elements", shift)
    pairs = PAIRS[shift::2]
    calls = "\n".join(
        f'extern "C" void combine_{i}(Bytes to, Bytes a, Bytes b, Bytes c, std::uint64_t bytes) {{\n'
        "  std::barrier<> alone(1);\n"
        f"  combine_known<{arithmetic(dtype, op)}, ReduceOp::{op}>(HostMachine(0, 1, alone), KnownEnds<1, 3>"
        "{{a, b, c, to}, bytes});\n}"
        for i, (dtype, op) in enumerate(pairs)
    )
    text = f'#include "host_machine.hpp"\nnamespace syntony::cuda {{\nusing Bytes = std::byte*;\n{calls}\n}}\n'
    (tmp_path / "elements.cpp").write_text(text)
    command = ["g++", *FLAGS, "-O1", *INCLUDES, "-fPIC", "-shared", str(tmp_path / "elements.cpp")]
    command += ["-o", str(tmp_path / "elements.so")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    library = ctypes.CDLL(str(tmp_path / "elements.so"))
    for i, (dtype, op) in enumerate(pairs):
        itemsize = _core.itemsize(dtype)
        for count, phases in ((515, (0, 0, 0)), (37, (0, itemsize % 16, 0))):
            sources = []
            for phase in phases:
                memory = aligned(count * itemsize, phase)
                memory[:] = rng.integers(0, 2 if dtype == "bool" else 256, memory.size)
                sources.append(memory)
            found, right = aligned(count * itemsize), aligned(count * itemsize)
            _core.reduce(dtype, op, right, sources)
            call = getattr(library, f"combine_{i}")
            call(*(ctypes.c_void_p(m.ctypes.data) for m in (found, *sources)), ctypes.c_longlong(count * itemsize))
            wrong = np.flatnonzero((found != right).reshape(-1, itemsize).any(1))
            assert not wrong.size, (dtype, op, phases, int(wrong[0]), found[:8], right[:8])


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_a_rank_that_does_not_come_is_a_named_wait_and_no_hang(tmp_path: Path) -> None:
    source = generate(built("ring", "all_reduce", 3), "float32")
    library = compile_for_host([source], tmp_path)
    run = HostRun(library, source, [1000], 1024, stripes=1, threads=2, ranks=range(2))
    run.launch(
        as_bytes(random_inputs(dict(source.program.columns()), [1000], generator("late"), floats=True)), seconds=0.2
    )
    # Who gives up first may itself wait for one that waits for rank 2.
    assert source.program.where(int(run.trouble[0]) - 1).startswith(("rank 0, ", "rank 1, "))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: generate(p, "float8"), "there is no element type 'float8'"),
        (lambda p: generate(p, "complex64", "max"), "'max' has no meaning for elements of complex64"),
        (
            lambda p: generate(Program(**{**p.columns(), "in_place": False}), "int8", in_place=True),
            "is not right in place",
        ),
        (lambda p: Sizes.of(p, [], 4, 1024), "blocks up to number 0"),
    ],
)
def test_refusals(call: Callable[[Program], Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        call(built("ring", "all_reduce", 2))


def test_importing_the_package_imports_neither_cupy_nor_torch() -> None:
    code = "import sys, syntony.collectives.cuda.source; sys.exit(any(m in sys.modules for m in ('cupy', 'torch')))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


# ---- compilers ------------------------------------------------------------------------------------------------------


def test_nvcc_takes_it_without_a_warning(tmp_path: Path, nvcc: str) -> None:
    """Machine code for every architecture, of kernels that use all parts of lane.hpp and the widest formats."""
    rng = generator("nvcc")
    sources = [
        generate(one_lane(built("two_shot", "all_reduce", 2)), "bfloat16"),
        generate(built("ring", "all_reduce", 2), "float16", copy_all=True),
        generate(Program(**fused_ring(rng, 2)), "float8_e4m3fn", "max"),
        generate(one_sided_gather(), "uint8"),
    ]
    (tmp_path / "kernels.cu").write_text("\n".join(source.text for source in sources))
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in (80, 90, 100)]
    command = [nvcc, "-std=c++20", "-fmad=false", "-Werror", "all-warnings", *targets, "-I", str(ROOT)]
    command += ["-fatbin", str(tmp_path / "kernels.cu"), "-o", str(tmp_path / "kernels.fatbin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert not done.stderr, done.stderr[-4000:]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_under_the_thread_sanitizer() -> None:
    """In a Python of its own, where the sanitizer's library is loaded first. Twenty seeds' worth of random Programs."""
    found = subprocess.run(["g++", "-print-file-name=libtsan.so"], capture_output=True, text=True, check=True)
    environment = {**os.environ, "LD_PRELOAD": found.stdout.strip(), "TSAN_OPTIONS": "halt_on_error=1:exitcode=66"}
    script = [sys.executable, "-m", "tests.collectives.cuda.sanitized_script"]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=1700, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    assert done.stdout.endswith("ok\n"), done.stdout
