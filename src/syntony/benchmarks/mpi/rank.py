"""`python -m syntony.benchmarks.mpi.rank NAME PATH...`: a rank of an MPI peer: does what its bench rank asks for.

    bench rank r ──► {"method": "lap", "case": [..], "in_place": false, "arguments": [1, 20]}
                 ◄── [1834, 1790, ..]                                    one JSON value per line, over a Unix socket

PATH number r is where rank r's bench rank listens. Between requests the rank sleeps in a read: it takes no processor
time while others are measured.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from syntony.benchmarks.bench.contenders import Contender
from syntony.benchmarks.bench.elements import ELEMENTS
from syntony.benchmarks.bench.measurement import Case, Memory, local_measurement
from syntony.benchmarks.bench.shapes import SHAPES


def case_of(fields: list[Any]) -> Case:
    """What `fields_of` has written."""
    shape, element, operation, root, block = fields
    return Case(SHAPES[shape], ELEMENTS[element], operation, root, block)


def fields_of(case: Case) -> list[Any]:
    """A case as JSON."""
    return [case.shape.name, case.element.name, case.operation, case.root, case.block]


def serve(contender: Contender, memory: Memory, requests: Iterable[str], answers: TextIO) -> None:
    """Answers until the requests end."""
    for line in requests:
        request = json.loads(line)
        measurement = local_measurement(contender, memory, case_of(request["case"]), request["in_place"])
        method = request["method"]
        answer = measurement is not None if method == "has" else getattr(measurement, method)(*request["arguments"])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main(name: str, paths: list[str]) -> None:
    """Joins MPI, then the bench."""
    import mpi4py

    mpi4py.rc.threads = False  # one thread: MPI needs no locks
    from mpi4py import MPI

    from syntony.benchmarks.mpi import oneccl
    from syntony.benchmarks.mpi.contender import Mpi
    from syntony.benchmarks.mpi.libraries import LIBRARIES

    rank = MPI.COMM_WORLD.Get_rank()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(paths[rank])
        contender: Contender = Mpi(MPI, name)
        if name == oneccl.NAME:
            contender = oneccl.OneCcl(MPI.COMM_WORLD, oneccl.compiled_in(LIBRARIES[name].folder))
        with connection.makefile("r") as requests, connection.makefile("w") as answers:
            serve(contender, Memory(rank, MPI.COMM_WORLD.Get_size()), requests, answers)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
