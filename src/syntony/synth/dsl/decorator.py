"""`@algorithm`: turns a Python function that describes data movement into a proven Program.

    @algorithm("all_reduce", ranks=4, chunks=lambda ranks: ranks)
    def ring(a):
        for chunk in range(a.chunks):
            x = a.input(rank=chunk, chunk=chunk)
            for hop in range(1, a.ranks):
                x = x.reduce(to=(chunk + hop) % a.ranks)        # the last sum is whole: it lands in the output
            for hop in range(a.ranks - 1):
                x = x.copy(to=(chunk + hop) % a.ranks)

    ring.program()            a Program, proven          ring.program(ranks=8)     the same idea on 8 ranks
    ring.save("ring.json")    what a Communicator loads, and `syntony simulate`, `convert`, `verify` read

Chunk references and instances are MSCCLang's (Cowan et al., ASPLOS 2023). Here the compiler also needs no channels,
thread blocks or dependencies from the user, and its result is proven.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from syntony.base.command import UserError
from syntony.synth.checker import check_program
from syntony.synth.dsl.lines import DslError, refused
from syntony.synth.dsl.recording import Recording
from syntony.synth.lowering.passes import optimize
from syntony.synth.lowering.passes.tape import Tape
from syntony.synth.model.collective import Collective
from syntony.synth.model.program import Program
from syntony.synth.model.target import CPU, Target, fit

Function = Callable[[Recording], None]
Count = int | Callable[[int], int]
"""A number, or a function of the ranks."""


class Algorithm:
    """A hand-written algorithm. Its function runs when a Program is requested."""

    def __init__(
        self,
        function: Function,
        kind: str,
        ranks: int,
        chunks: Count,
        root: int,
        instances: int,
        target: Target,
        coalesce: bool,
        fuse: bool,
    ) -> None:
        self.function, self.kind, self.ranks, self.root, self.instances = function, kind, ranks, root, instances
        self.name = function.__name__
        self.chunks: Callable[[int], int] = chunks if callable(chunks) else lambda _: chunks
        self.target, self.coalesce, self.fuse = target, coalesce, fuse
        code = function.__code__
        self.defined = f"{code.co_filename}:{code.co_firstlineno}"

    def __repr__(self) -> str:
        return f"<algorithm {self.name}: {self.kind} on {self.ranks} ranks>"

    def program(self, ranks: int | None = None, root: int | None = None, instances: int | None = None) -> Program:
        """The optimized, proven Program, by default with the decorator's numbers. DslError at the user's line."""
        written = self.as_written(ranks, root, instances)
        program = fit(optimize(written, self.target, self.coalesce, self.fuse), self.target)
        verdict = check_program(program)
        if not verdict:
            raise AssertionError(f"optimizing {self.name} broke it: {verdict.fault}")
        return program

    def as_written(self, ranks: int | None = None, root: int | None = None, instances: int | None = None) -> Program:
        """The Program exactly as the function describes it, step by step; proven, not optimized."""
        recording, tape = self._record(ranks or self.ranks, self.root if root is None else root, instances)
        program = tape.program()
        verdict = check_program(program)
        if not verdict:
            raise recording.error_at(verdict.agent, verdict.lane, verdict.instruction, str(verdict.fault))
        return program

    def save(self, path: str | Path, ranks: int | None = None, root: int | None = None) -> None:
        """Writes the Program file."""
        from syntony.synth.formats.program_file import write_program

        write_program(self.program(ranks, root), path)

    def _record(self, ranks: int, root: int, instances: int | None) -> tuple[Recording, Tape]:
        parts = self.instances if instances is None else instances
        chunks = self.chunks(ranks)
        if parts < 1 or chunks < 1:
            raise refused(f"{self.name} has {chunks} chunks and {parts} instances; at least 1 each", self.defined)
        try:
            collective = Collective.make(self.kind, ranks, chunks * parts, root)
        except UserError as error:
            raise refused(str(error), self.defined) from None
        recording = Recording(collective, chunks, parts)
        try:
            for instance in range(parts):
                recording.instance = instance
                self.function(recording)
        finally:
            recording.closed = True
        return recording, recording.tape(self.name, self.defined)


def algorithm(
    kind: str,
    ranks: int,
    chunks: Count = 1,
    root: int = 0,
    instances: int = 1,
    target: Target = CPU,
    coalesce: bool = False,
    fuse: bool = False,
) -> Callable[[Function], Algorithm]:
    """Makes a function of a Recording an Algorithm of the collective `kind`.

    ranks, root  defaults of `program`, which may override them
    chunks       chunks per block: a number, or a function of the ranks
    instances    number of parallel copies, each on its part of every block and on separate lanes
    target       what the Program must fit and is optimized for
    coalesce     whether consecutive messages on one path become one: for small sizes
    fuse         whether a receive and the send of its data become one: fewer lanes and slots, less overlap
    """

    def made(function: Function) -> Algorithm:
        return Algorithm(function, kind, ranks, chunks, root, instances, target, coalesce, fuse)

    return made


__all__ = ["Algorithm", "DslError", "algorithm"]
