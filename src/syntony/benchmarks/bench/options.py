"""The bench's command line: nccl-tests' options if they apply here; others are rejected."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from syntony.base.arguments import size_or_zero as size
from syntony.base.command import UserError
from syntony.base.files.whole_file import is_special
from syntony.base.outputs import add_output, require_output
from syntony.base.wording import unknown
from syntony.benchmarks.bench.elements import ALIASES, ELEMENTS, Element
from syntony.benchmarks.bench.kernels.kernels import KERNELS
from syntony.benchmarks.bench.measure import Effort
from syntony.benchmarks.bench.reference import BITWISE, OPERATIONS
from syntony.benchmarks.bench.shapes import SHAPES, Shape
from syntony.benchmarks.bench.split import Split
from syntony.benchmarks.bench.split import read as read_split
from syntony.benchmarks.cuda.names import ALGORITHMS as CUDA_ALGORITHMS
from syntony.benchmarks.cuda.names import PEERS as CUDA_PEERS
from syntony.benchmarks.cuda.names import PROTOCOLS
from syntony.benchmarks.mpi.libraries import LIBRARIES, installed
from syntony.collectives.tuner.settings import algorithms

PEERS = ("gloo", "torch", *KERNELS, *LIBRARIES)
"""`torch` is our own torch backend. `mpi` selects all MPI libraries that are installed, `all` all peers that are
installed."""

DEVICES = ("cpu", "cuda")

# Options of nccl-tests without effect here. They are rejected rather than ignored, unless their value is what happens
# anyway.
_REFUSED: tuple[tuple[str, str, str, str], ...] = (
    ("-g", "--ngpus", "1", "a rank has one GPU or none; --ranks N starts N processes"),
    ("-m", "--agg_iters", "1", "operations on the same buffer are not grouped"),
    ("-p", "--parallel_init", "0", "ranks always join at the same time"),
    ("-z", "--blocking", "0", "the time until results are there is what is reported"),
    ("-y", "--stream_null", "0", "a rank on a GPU has a stream of its own"),
    ("-C", "--report_cputime", "0", "the time until results are there is what is reported"),
    ("-R", "--local_register", "0", "buffers are ordinary memory"),
    ("-x", "--cta_policy", "0", "a Program says how many thread blocks it wants"),
    ("-D", "--device_implementation", "0", "there are no kernels beside the executor's"),
    ("-V", "--device_cta_count", "0", "a Program says how many thread blocks it wants"),
    ("-M", "--memory", "0", "memory in use is not reported"),
    ("-u", "--unalign", "0", "buffers are aligned to the page"),
)

# Options of nccl-tests that apply only to GPUs, each with its neutral value.
_OF_GPUS: dict[str, tuple[object, str]] = {
    "threads": (
        1,
        "-t/--nthreads of nccl-tests means nothing on CPUs: a rank is a process there; --ranks N starts several",
    ),
    "graph": (0, "-G/--cudagraph of nccl-tests means nothing on CPUs: there are no CUDA graphs"),
    "protocol": (None, "--protocol is how messages travel between GPUs; --device cuda has it"),
}

_T = TypeVar("_T")


@dataclass(frozen=True)
class Options:
    """A benchmark, fully described. Sizes in bytes, times in seconds."""

    shape: Shape
    device: str
    processes: int | None
    split: Split | None
    threads: int
    graph: int
    protocols: tuple[str, ...]
    min_bytes: int
    max_bytes: int
    step_bytes: int
    step_factor: int | None
    effort: Effort
    cycles: int
    per_iteration: bool
    timestamps: bool
    elements: tuple[Element, ...]
    operations: tuple[str | None, ...]
    roots: tuple[int, ...] | None
    algorithms: tuple[str, ...]
    schedule: Path | None
    peers: tuple[str, ...]
    timeout: float
    output_file: Path | None
    csv_file: Path | None
    results: Path | None
    json: bool
    others: tuple[Options, ...] = ()  # those of the other collectives, with one table each

    def each(self) -> tuple[Options, ...]:
        """One benchmark per collective, in the order of the command line."""
        return (self, *self.others)

    def sizes(self) -> Iterator[int]:
        """The sweep: from `min_bytes` to `max_bytes`, both included."""
        size = self.min_bytes
        while size <= self.max_bytes:
            yield size
            size = size * self.step_factor if self.step_factor is not None else size + self.step_bytes


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the bench's arguments."""
    parser.add_argument(
        "collective",
        nargs="+",
        choices=list(SHAPES),
        metavar="COLLECTIVE",
        help=f"one or more of {', '.join(SHAPES)}",
    )
    sweep = parser.add_argument_group("sizes (bytes; K, M, G and KiB are powers of 1024, KB of 1000)")
    sweep.add_argument("-b", "--minbytes", type=size, default=32 << 20, metavar="SIZE", help="smallest size (32M)")
    sweep.add_argument("-e", "--maxbytes", type=size, default=None, metavar="SIZE", help="largest size (the smallest)")
    step = sweep.add_mutually_exclusive_group()
    step.add_argument("-i", "--stepbytes", type=size, default=1 << 20, metavar="SIZE", help="added at each step (1M)")
    step.add_argument("-f", "--stepfactor", type=int, default=None, metavar="N", help="multiplied at each step")

    what = parser.add_argument_group("what is run")
    what.add_argument("-d", "--datatype", default="float", metavar="TYPE", help=f"{', '.join(ELEMENTS)}, all (float)")
    what.add_argument("-o", "--op", default="sum", metavar="OP", help=f"{', '.join(OPERATIONS)}, all (sum)")
    what.add_argument("-r", "--root", default="0", metavar="RANK", help="root rank, or all (0)")
    what.add_argument("--device", choices=DEVICES, default="cpu", help="device of the buffers (cpu)")
    what.add_argument("--algo", default=None, metavar="A[,B...]", help=f"{', '.join(_all_algorithms())} (auto)")
    what.add_argument("--protocol", default=None, metavar="P[,Q...]", help=f"cuda: {', '.join(PROTOCOLS)} (simple)")
    what.add_argument("--schedule", type=Path, default=None, metavar="FILE", help="a schedule or Program file to run")
    what.add_argument(
        "--peers",
        default="",
        metavar="P[,Q...]",
        help=f"compare with {', '.join(PEERS)}, mpi, all (installed ones); cuda: {', '.join(CUDA_PEERS)}",
    )
    what.add_argument("--ranks", type=int, default=None, metavar="N", help="processes to start here (2)")
    what.add_argument("--split", default=None, metavar="'OP N'",
                      help="groups at the same time: AND, OR, MOD, DIV ($NCCL_TESTS_SPLIT)")  # fmt: skip
    what.add_argument("-t", "--nthreads", type=int, default=None, dest="threads", metavar="N",
                      help="cuda: ranks per process")  # fmt: skip

    how = parser.add_argument_group("how it is measured")
    how.add_argument("-n", "--iters", type=int, default=20, metavar="N", help="timed iterations (20)")
    how.add_argument("-w", "--warmup_iters", type=int, default=1, metavar="N", help="iterations before them (1)")
    how.add_argument("--fresh", action="store_true", help="write inputs before each iteration, untimed")
    how.add_argument("-c", "--check", type=int, default=1, metavar="N", help="checked iterations; 0: no check (1)")
    how.add_argument("-N", "--run_cycles", type=int, default=1, metavar="N", help="repeat the sweep; 0: for ever (1)")
    how.add_argument(
        "-a", "--average", type=int, default=1, choices=range(4), help="0 rank 0, 1 mean, 2 min, 3 max (1)"
    )
    how.add_argument("-I", "--per_iter_timing", action="store_true", help="show min, max, p99, cv%% of iterations")
    how.add_argument(
        "-K", "--per_iter_skip", type=int, default=0, metavar="N", help="leave the first N out of -I's statistics"
    )
    how.add_argument("-G", "--cudagraph", type=int, default=None, dest="graph", metavar="N",
                     help="cuda: capture the iterations, replay them N times (0)")  # fmt: skip
    how.add_argument("-T", "--timeout", type=float, default=120.0, metavar="S", help="seconds without progress (120)")

    out = parser.add_argument_group("what is written, row by row (several collectives: F.COLLECTIVE.json)")
    out.add_argument("-S", "--report_timestamps", action="store_true", help="end each row with the time of day")
    add_output(out, "-J", "--output_file", metavar="FILE", help="JSON as nccl-tests writes it")
    add_output(out, "--csv", metavar="FILE", help="a line per row, contender and form")
    add_output(out, "--results", folder=True, metavar="FOLDER", help="a page with date, device, versions")
    out.add_argument("--json", action="store_true", help="print the JSON instead of the table")
    for short, long, neutral, reason in _REFUSED:
        parser.add_argument(
            short, long, nargs="?", action=_Refuse, neutral=neutral, reason=reason, help=argparse.SUPPRESS
        )


def read(arguments: argparse.Namespace) -> Options:
    """The benchmarks that the arguments describe, as the first of them. Raises UserError, naming the option."""
    chosen = tuple(dict.fromkeys(arguments.collective))
    if len(chosen) > 1 and arguments.schedule is not None:
        raise UserError(f"--schedule {arguments.schedule} is for one collective, and there are {', '.join(chosen)}")
    first, *others = (_read(arguments, SHAPES[name], len(chosen) > 1) for name in chosen)
    return replace(first, others=tuple(others))


def _read(arguments: argparse.Namespace, shape: Shape, of_several: bool) -> Options:
    _at_least(arguments.minbytes, 0, "--minbytes")
    largest = arguments.minbytes if arguments.maxbytes is None else arguments.maxbytes
    if largest < arguments.minbytes:
        raise UserError(f"--maxbytes {largest} is less than --minbytes {arguments.minbytes}")
    if arguments.stepfactor is not None:
        _at_least(arguments.stepfactor, 2, "--stepfactor")
        if arguments.minbytes == 0 and largest > 0:
            raise UserError("--stepfactor cannot leave --minbytes 0; use --stepbytes")
    _at_least(arguments.stepbytes, 1, "--stepbytes")
    for name, least in (("iters", 1), ("warmup_iters", 0), ("check", 0), ("run_cycles", 0), ("per_iter_skip", 0)):
        _at_least(getattr(arguments, name), least, f"--{name}")
    if arguments.ranks is not None:
        _at_least(arguments.ranks, 1, "--ranks")
    if not arguments.timeout > 0:
        raise UserError(f"--timeout {arguments.timeout:g} must be more than 0 seconds")
    if arguments.schedule is not None and arguments.algo is not None:
        raise UserError("--schedule and --algo exclude each other: a schedule file is the algorithm")
    if shape.name == "sendrecv" and (arguments.schedule is not None or arguments.algo not in (None, "auto")):
        raise UserError("sendrecv is point to point: --algo and --schedule mean nothing for it")
    cuda = arguments.device == "cuda"
    for name, (neutral, why) in _OF_GPUS.items():
        if not cuda and getattr(arguments, name) not in (None, neutral):
            raise UserError(why)
    if cuda:
        _check_for_gpus(arguments, shape)
    split = read_split(arguments.split, os.environ)
    if cuda and split is not None:
        raise UserError("--split is for --device cpu: ranks on GPUs are one group here")
    elements = _elements(arguments.datatype)
    return Options(
        shape=shape,
        device=arguments.device,
        processes=arguments.ranks if arguments.threads is None or not cuda else 1,
        split=split,
        threads=arguments.threads or 1,
        graph=arguments.graph or 0,
        protocols=_listed("--protocol", arguments.protocol or "simple", PROTOCOLS),
        min_bytes=arguments.minbytes,
        max_bytes=largest,
        step_bytes=arguments.stepbytes,
        step_factor=arguments.stepfactor,
        effort=Effort(
            arguments.iters,
            arguments.warmup_iters,
            arguments.check,
            arguments.per_iter_skip,
            arguments.average,
            fresh=arguments.fresh,
        ),
        cycles=arguments.run_cycles,
        per_iteration=arguments.per_iter_timing,
        timestamps=arguments.report_timestamps,
        elements=elements,
        operations=_operations(arguments.op, elements) if shape.reduces else (None,),
        roots=_roots(arguments.root) if shape.rooted else (0,),
        algorithms=_algorithms(arguments.algo or "auto", shape, cuda),
        schedule=arguments.schedule,
        peers=()
        if not arguments.peers
        else _listed("--peers", arguments.peers, CUDA_PEERS)
        if cuda
        else peers(arguments.peers),
        timeout=arguments.timeout,
        output_file=_own(arguments.output_file, shape, arguments, of_several),
        csv_file=_own(arguments.csv, shape, arguments, of_several),
        results=arguments.results,
        json=arguments.json,
    )


def _own(path: Path | None, shape: Shape, arguments: argparse.Namespace, of_several: bool) -> Path | None:
    """The output file of one collective; each of several collectives has a separate file."""
    if path is None or not of_several or is_special(path):
        return path
    found = path.with_name(f"{path.stem}.{shape.name}{path.suffix}")
    require_output(found, arguments.force)
    return found


def peers(text: str) -> tuple[str, ...]:
    """Parses a comma-separated list. Raises UserError for names that are unknown or not installed."""
    names = _listed("--peers", text, (*PEERS, "mpi", "all"))
    found = {"mpi": installed, "all": _all_there}
    chosen = tuple(dict.fromkeys(one for name in names for one in (found[name]() if name in found else (name,))))
    for name in chosen:
        _require_peer(name)
    return chosen


def _all_there() -> tuple[str, ...]:
    """The installed peers. Tells on stderr how to get the others."""
    there = []
    for name in PEERS:
        try:
            _require_peer(name)
            there.append(name)
        except UserError as missing:
            print(missing, file=sys.stderr)
    return tuple(there)


def _require_peer(name: str) -> None:
    if name in LIBRARIES:
        LIBRARIES[name].require()
    elif name in KERNELS:
        KERNELS[name].require()


def _all_algorithms() -> tuple[str, ...]:
    """Those of any collective, on CPUs."""
    return ("auto", *dict.fromkeys(name for names in algorithms().values() for name in names))


def _algorithms(text: str, shape: Shape, cuda: bool) -> tuple[str, ...]:
    names = ("auto", *algorithms().get(shape.name, ()), *(CUDA_ALGORITHMS if cuda else ()))
    return _listed(f"--algo of {shape.name}", text, names)


def _check_for_gpus(arguments: argparse.Namespace, shape: Shape) -> None:
    if arguments.fresh:
        raise UserError("--fresh writes inputs with the CPU: --device cuda has no such form")
    if shape.name == "sendrecv":
        raise UserError("--device cuda runs Programs, and sendrecv is none: it is point to point")
    if arguments.threads is not None:
        _at_least(arguments.threads, 1, "--nthreads")
        if arguments.ranks is not None:
            raise UserError("--nthreads and --ranks exclude each other: ranks share one process, or have one each")
    if arguments.graph is not None:
        _at_least(arguments.graph, 0, "--cudagraph")
        if arguments.graph > 0 and arguments.per_iter_timing:
            raise UserError("--per_iter_timing and --cudagraph exclude each other: a graph is timed as a whole")


class _Refuse(argparse.Action):
    """An option of nccl-tests without effect here; its neutral value is accepted."""

    def __init__(self, *, neutral: str, reason: str, **keywords: object) -> None:
        super().__init__(**keywords)  # type: ignore[arg-type]
        self._neutral, self._reason = neutral, reason

    def __call__(self, _: object, __: object, values: object, ___: object = None) -> None:
        if values == self._neutral:
            return
        raise UserError(f"{'/'.join(self.option_strings)} of nccl-tests means nothing here: {self._reason}")


def _at_least(value: int, least: int, option: str) -> None:
    if value < least:
        raise UserError(f"{option} {value} must be at least {least}")


def _listed(option: str, text: str, names: tuple[str, ...]) -> tuple[str, ...]:
    chosen = tuple(dict.fromkeys(text.split(",")))
    for name in chosen:
        _known(option, name, names, lambda name: name)
    return chosen


def _known(option: str, name: str, names: tuple[str, ...], make: Callable[[str], _T]) -> _T:
    if name not in names:
        raise UserError(f"{option}: {unknown('such name', name, names)}")
    return make(name)


def _elements(text: str) -> tuple[Element, ...]:
    if text == "all":
        return tuple(ELEMENTS.values())
    name = ALIASES.get(text, text)
    return (_known("--datatype", name, tuple(ELEMENTS), ELEMENTS.__getitem__),)


def _operations(text: str, elements: tuple[Element, ...]) -> tuple[str, ...]:
    """`all` is every operation that all chosen types support."""
    if text != "all":
        return (_known("--op", text, OPERATIONS, lambda name: name),)
    integers = all(element.integer for element in elements)
    return tuple(operation for operation in OPERATIONS if integers or operation not in BITWISE)


def _roots(text: str) -> tuple[int, ...] | None:
    if text in ("all", "-1"):
        return None
    if not text.isdecimal():
        raise UserError(f"--root {text}: a rank such as 0, or all")
    return (int(text),)
