"""The table of file kinds of `syntony view`: how a file is recognized by its content, and who makes its View.

To add one: a file in makers/ and a row here. The first row that recognizes a file gets it. Rows with `together` take
all of their files at once, as one View: for example, the dumps of all ranks of a job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syntony.base.command import UserError
from syntony.base.files.strict_json import FileError
from syntony.base.wording import did_you_mean, time
from syntony.view.models import ANOTHER, View

if TYPE_CHECKING:
    from syntony.synth.engines.portfolio import Portfolio
    from syntony.synth.model.program import Program
    from syntony.synth.model.schedule import Schedule

_HEAD = 1 << 16
_MOST_JSON = 1 << 30


@dataclass(frozen=True)
class Options:
    """The command's options; see `syntony view --help`."""

    size: int = 1 << 26
    topology: str | None = None
    machine: str = "cpu"
    fifo_depth: int | None = None


@dataclass(frozen=True)
class Source:
    """A file, a folder, or the name of a topology."""

    name: str

    @property
    def path(self) -> Path:
        return Path(self.name)

    @cached_property
    def raw(self) -> bytes:
        """The first 64 KiB; empty for a folder."""
        if not self.path.is_file():
            return b""
        with self.path.open("rb") as file:
            return file.read(_HEAD)

    @cached_property
    def head(self) -> str:
        return self.raw.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")

    @cached_property
    def json(self) -> Any:
        """The value of a JSON file, None if it is not JSON. This only recognizes; the reader of each kind is strict."""
        if self.head[:1] not in ("{", "[") or self.path.stat().st_size > _MOST_JSON:
            return None
        try:
            return json.loads(self.path.read_bytes())
        except (ValueError, RecursionError):
            return None

    @cached_property
    def element(self) -> str:
        """The first element of an XML file."""
        found = re.match(r"(?:<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>]*>|\s+)*<([A-Za-z_][\w.-]*)", self.head, re.DOTALL)
        return found[1] if found else ""

    def says(self, key: str, value: object) -> bool:
        """Whether it is a JSON object with this value at the key; if malformed, whether its beginning has it."""
        if isinstance(self.json, dict):
            return bool(self.json.get(key) == value)
        return (
            self.head.startswith("{")
            and re.search(rf'"{key}"\s*:\s*{re.escape(json.dumps(value))}', self.head) is not None
        )


@dataclass(frozen=True)
class Kind:
    """One kind of file; `view` makes the View of a source, or of all of them together."""

    name: str
    what: str
    recognizes: Callable[[Source], bool]
    view: Callable[[Sequence[Source], Options], View]
    together: bool = False


def _content(sources: Sequence[Source], options: Options) -> View:
    """A schedule, portfolio or program in any format: proven first, or shown with its first fault."""
    from syntony.synth.checker import Verdict
    from syntony.synth.formats.loading import read
    from syntony.synth.formats.msccl.xml_file import MscclError
    from syntony.view.makers import fault

    name = sources[0].name
    try:
        content = read(name).content
    except MscclError as error:
        return fault.refused(None, Verdict(valid=False, fault=str(error)), name, "program")
    except FileError as error:
        return fault.unreadable(name, str(error))
    except UserError as error:
        return fault.refused(None, Verdict(valid=False, fault=str(error)), name, "file")
    return shown(content, name, options)


def shown(content: Schedule | Portfolio | Program, name: str, options: Options) -> View:
    """The View of a schedule, a portfolio or a program, which is proven first, or of its first fault."""
    from syntony.synth.checker import check_program, check_schedule
    from syntony.synth.engines.portfolio import Portfolio
    from syntony.synth.model.program import Program
    from syntony.topologies.parse import parse
    from syntony.view.makers import fault, portfolio, program, schedule

    if isinstance(content, Program):
        verdict = check_program(content, options.fifo_depth)
        if not verdict:
            return fault.refused(content, verdict, name, "program")
        return program.view(
            content,
            parse(options.topology or f"full:{content.ranks}"),
            options.topology is not None,
            name,
            options.size,
        )
    if isinstance(content, Portfolio):
        for entry in content.entries:
            verdict = check_schedule(entry.schedule)
            if not verdict:
                return fault.refused(entry.schedule, verdict, name, "schedule of a portfolio")
        return portfolio.view(content, name, options.size)
    verdict = check_schedule(content)
    if not verdict:
        return fault.refused(content, verdict, name, "schedule")
    return schedule.view(content, name, options.size)


def _topology(sources: Sequence[Source], options: Options) -> View:
    from syntony.topologies.parse import parse
    from syntony.view.makers import fault, network

    del options
    name = sources[0].name
    try:
        topology = parse(f"file:{name}" if sources[0].path.exists() else name)
    except UserError as error:
        if not sources[0].path.exists():
            raise
        return fault.unreadable(name, str(error))
    return network.view(topology, name)


def _is_topology(source: Source) -> bool:
    from syntony.topologies.readers import FORMATS

    if not source.path.exists():
        from syntony.topologies.families import FAMILIES

        return re.split(r"[:,]", source.name)[0] in (*FAMILIES, "file")
    if source.path.is_dir():
        return (source.path / "sys").is_dir()
    if isinstance(source.json, dict):
        return source.says("format", "syntony-topology") or FORMATS["taccl-json"].begins(source.head)
    return source.says("format", "syntony-topology") or any(
        form.begins(source.head) for name, form in FORMATS.items() if name != "json"
    )


def _is_content(source: Source) -> bool:
    from syntony.synth.formats.mscclpp.plan import is_plan

    ours = ("syntony-schedule", "syntony-portfolio", "syntony-program")
    return (
        source.element == "algo"
        or any(source.says("format", name) for name in ours)
        or is_plan(source.json)
        or source.says("msccl_type", "algorithm")
    )


def _bench(sources: Sequence[Source], options: Options) -> View:
    from syntony.topologies.parse import parse
    from syntony.view.makers import bench

    return bench.view([source.name for source in sources], parse(options.topology) if options.topology else None)


def _is_bench(source: Source) -> bool:
    from syntony.view.makers.bench import CSV_HEAD, NCCL_HEAD, OSU_HEAD, is_record

    text = source.head
    return is_record(source.json) or text.startswith(CSV_HEAD) or bool(NCCL_HEAD.search(text) or OSU_HEAD.search(text))


def _step(sources: Sequence[Source], options: Options) -> View:
    from syntony.view.makers import fault, step

    try:
        return step.view([source.name for source in sources], options.machine)
    except FileError as error:
        return fault.unreadable(sources[0].name, str(error))


def _is_step(source: Source) -> bool:
    # A Chakra trace begins with the length of its metadata, whose first field is the version, as text.
    return (
        source.says("format", "syntony-plan")
        or re.match(rb"[\x80-\xff]*[\x00-\x7f]\x0a[\x01-\x20]\d+\.\d+", source.raw) is not None
    )


def _nccl_log(sources: Sequence[Source], options: Options) -> View:
    from syntony.view.makers import nccl

    del options
    return nccl.log(sources[0].name)


def _is_nccl_log(source: Source) -> bool:
    from syntony.view.makers.nccl import is_log

    return is_log(source.head)


def _nccl_graph(sources: Sequence[Source], options: Options) -> View:
    from syntony.view.makers import nccl

    del options
    return nccl.graph(sources[0].name)


def _inspector(sources: Sequence[Source], options: Options) -> View:
    from syntony.view.makers import nccl_watch

    del options
    return nccl_watch.inspector([source.name for source in sources])


def _is_inspector(source: Source) -> bool:
    from syntony.view.makers.nccl_watch import inspector_lines

    return inspector_lines(source.head)


def _ras(sources: Sequence[Source], options: Options) -> View:
    from syntony.view.makers import nccl_watch

    del options
    return nccl_watch.ras(sources[0].name)


def _is_ras(source: Source) -> bool:
    from syntony.view.makers.nccl_watch import is_ras

    return is_ras(source.json)


def _records(sources: Sequence[Source], options: Options) -> View:
    from syntony.view.makers import records

    del options
    return records.own(sources[0].name)


def _is_records(source: Source) -> bool:
    from syntony.view.makers.records import is_folder

    return is_folder(source.path)


def _torch_records(sources: Sequence[Source], options: Options) -> View:
    from syntony.view.makers import records

    del options
    return records.torch([source.name for source in sources])


def _is_torch_records(source: Source) -> bool:
    from syntony.view.makers.records import is_torch

    return is_torch(source.raw, source.path)


KINDS: tuple[Kind, ...] = (
    Kind(
        "schedule",
        "schedules, portfolios and programs: ours, MSCCL XML, MSCCL++ plans, .msccl.json",
        _is_content,
        _content,
    ),
    Kind("bench", "results of benches: ours (JSON, CSV), nccl-tests' and OSU's", _is_bench, _bench, together=True),
    Kind("step", "training steps: plans, and Chakra traces of measured ones", _is_step, _step, together=True),
    Kind("records", "records of a job: the folder that SYNTONY_TRACE_DIR named", _is_records, _records),
    Kind("flight", "torch's flight-recorder pickles, one per rank", _is_torch_records, _torch_records, together=True),
    Kind(
        "nccl-graph", "NCCL's graph XML (NCCL_GRAPH_DUMP_FILE)", lambda source: source.element == "graphs", _nccl_graph
    ),
    Kind("nccl-log", "logs of jobs with NCCL_DEBUG=INFO", _is_nccl_log, _nccl_log),
    Kind("inspector", "NCCL Inspector's JSON, a file per process", _is_inspector, _inspector, together=True),
    Kind("ras", "the JSON of NCCL's RAS", _is_ras, _ras),
    Kind("topology", "topologies: by name, ours, NCCL's, hwloc's, nvidia-smi's, TACCL's", _is_topology, _topology),
)


def views(names: Sequence[str], options: Options) -> list[View]:
    """The Views of files, in their order. Raises UserError for a file of no known kind."""
    found: list[tuple[Kind, list[Source]]] = []
    for name in names:
        source = Source(name)
        kind = _kind_of(source)
        mates = next((mates for other, mates in found if other is kind and kind.together), None)
        if mates is None:
            found.append((kind, [source]))
        else:
            mates.append(source)
    return _introduced([kind.view(mates, options) for kind, mates in found])


def _introduced(made: list[View]) -> list[View]:
    """Tells each schedule or program about the others that are shown for the same size, the fastest first."""
    clocks = {
        at: moved for at, view in enumerate(made) for panel in view.panels if (moved := getattr(panel, "motion", None))
    }
    if len(clocks) < 2:
        return made
    order = sorted(clocks, key=lambda at: clocks[at].seconds)
    told = list(made)
    for at, mine in clocks.items():
        rivals = [f"{made[other].file} takes {time(clocks[other].seconds)}" for other in order if other != at]
        words = f"This one takes {time(mine.seconds)}; {'; '.join(rivals)}. "
        questions = tuple(
            replace(one, answer=words + one.answer) if one.question == ANOTHER else one for one in made[at].questions
        )
        told[at] = replace(made[at], questions=questions)
    return told


def _kind_of(source: Source) -> Kind:
    try:
        kind = next((kind for kind in KINDS if kind.recognizes(source)), None)
    except OSError as error:
        raise UserError(f"{source.name}: cannot be read: {error.strerror}") from None
    if kind is None:
        if not source.path.exists():
            from syntony.topologies.families import FAMILIES

            guess = did_you_mean(re.split(r"[:,]", source.name)[0], FAMILIES)
            raise UserError(
                f"{source.name}: there is no such file, and no topology of this name{guess}; `topo list` has them"
            )
        raise UserError(f"{source.name}: it is none of what `view` knows; `syntony view --kinds` lists that")
    return kind
