"""Results in files: nccl-tests' JSON (version 3) with our additions, and CSV.

Both grow row by row, so that an interrupted run keeps its results. Of the environment, only the variables that Syntony
itself reads are copied into the file.
"""

from __future__ import annotations

import csv
import datetime
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from syntony.base.files.row_file import RowFile, RowsInJson
from syntony.base.files.strict_json import FileError
from syntony.base.files.whole_file import beside
from syntony.benchmarks.bench import report
from syntony.benchmarks.bench.measure import Result, Timing
from syntony.benchmarks.bench.measurement import Case
from syntony.benchmarks.bench.options import Options
from syntony.benchmarks.bench.table import bandwidths

_CSV_COLUMNS = (
    *("collective", "size", "count", "type", "redop", "root", "ranks", "contender", "form"),
    *("time_us", "p50_us", "p99_us", "min_us", "max_us", "algbw_gbs", "busbw_gbs", "wrong"),
)


class Record:
    """Collects rows as they are measured, and writes them to the requested files if it `writes`."""

    def __init__(
        self,
        options: Options,
        ranks: int,
        devices: Sequence[dict[str, Any]],
        remarks: Sequence[str] = (),
        writes: bool = False,
    ) -> None:
        self._options = options
        self._ranks = ranks
        self._devices = list(devices)
        self._remarks = list(remarks)
        self._started = _now()
        self._results: list[dict[str, Any]] = []
        self._bus_bandwidths: list[float] = []
        self._writes = writes
        json_file, csv_file = (options.output_file, options.csv_file) if writes else (None, None)
        self._json = RowsInJson(json_file, "results", self._about) if json_file else None
        self._csv = RowFile(csv_file, _line(_CSV_COLUMNS)) if csv_file else None
        self.wrong = 0

    def add(self, case: Case, results: Sequence[Result]) -> None:
        """Adds one row. Raises FileError if it cannot be written."""
        moved = case.bytes_moved(self._ranks)
        first, *rivals = results
        operation, root = case.operation or "none", case.root if case.shape.rooted else -1
        row = {"size": moved, "count": case.block, "type": case.element.name, "redop": operation, "root": root}
        self._results.append(
            row
            | self._forms(case, first)
            | {"actual_iterations": self._options.effort.iterations, "experiment_name": first.label}
            | {"peers": [{"name": rival.label} | self._forms(case, rival) for rival in rivals]}
        )
        for result in results:
            for form, timing in (("out-of-place", result.out_of_place), ("in-place", result.in_place)):
                if timing is None:
                    continue
                algorithm, bus = bandwidths(case.shape, self._ranks, moved, timing.mean)
                microseconds = [
                    round(seconds * 1e6, 3)
                    for seconds in (timing.mean, timing.p50, timing.p99, timing.least, timing.most)
                ]
                wrong = "" if timing.wrong is None else timing.wrong
                labels = (case.shape.name, *row.values(), self._ranks, result.label, form)
                if self._csv:
                    self._csv.add(_line((*labels, *microseconds, round(algorithm, 6), round(bus, 6), wrong)))
                self.wrong += timing.wrong or 0
                if result is first:
                    self._bus_bandwidths.append(bus)
        if self._json:
            self._json.add(self._results[-1])

    @property
    def average_bus_bandwidth(self) -> float:
        """Mean over all rows and forms of the first contender, GB/s."""
        return float(np.mean(self._bus_bandwidths)) if self._bus_bandwidths else 0.0

    def document(self) -> dict[str, Any]:
        """The whole record. Booleans are the strings "true" and "false", as in nccl-tests."""
        return {"results": self._results, **self._about()}

    def _about(self) -> dict[str, Any]:
        """Everything but the rows, in its current state."""
        options, effort = self._options, self._options.effort
        steps = (
            {"step_bytes": options.step_bytes} if options.step_factor is None else {"step_factor": options.step_factor}
        )
        okay = _truth(self.wrong == 0)
        return {
            "version": 3,
            "start_time": self._started,
            "args": sys.argv,
            "env": [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith("SYNTONY_")],
            "collective": options.shape.name,
            "nccl_version": f"syntony {version('syntony')}",
            "config": {
                "nthreads": options.threads,
                "ngpus": int(options.device == "cuda"),
                "minimum_bytes": options.min_bytes,
                "maximum_bytes": options.max_bytes,
                **steps,
                "warmup_iters": effort.warmups,
                "iterations": effort.iterations,
                "aggregated_iterations": 1,
                "validation": effort.checks,
                "graph": options.graph,
                "blocking_collectives": _truth(True),
                "per_iter_timing": _truth(options.per_iteration),
                "per_iter_skip": effort.skip,
                "parallel_init": _truth(False),
                "devices": self._devices,
            },
            "notes": self._remarks,
            "out_of_bounds": {"count": self.wrong, "okay": okay},
            "average_bus_bandwidth": {"bandwidth": self.average_bus_bandwidth, "okay": _truth(True)},
            "errors": [],
            "end_time": _now(),
        }

    def close(self) -> list[Path]:
        """Ends the record. Returns the names of the files that were written."""
        written = []
        for path, rows in ((self._options.output_file, self._json), (self._options.csv_file, self._csv)):
            if rows is not None and path is not None:
                rows.close()
                written.append(path)
        if self._writes and self._options.results is not None:
            document = self.document()
            self._options.results.mkdir(parents=True, exist_ok=True)
            written.append(write_beside(self._options.results / report.name(document), report.page(document)))
        return written

    def _forms(self, case: Case, result: Result) -> dict[str, Any]:
        return {
            "out_of_place": self._form(case, result.out_of_place),
            "in_place": self._form(case, result.in_place),
        }

    def _form(self, case: Case, timing: Timing | None) -> dict[str, Any] | None:
        if timing is None:
            return None
        algorithm, bus = bandwidths(case.shape, self._ranks, case.bytes_moved(self._ranks), timing.mean)
        microseconds = {
            f"{name}_us": value * 1e6
            for name, value in asdict(timing).items()
            if name in ("p50", "p99", "least", "most")
        }
        wrong = "N/A" if timing.wrong is None else timing.wrong
        return {"time": timing.mean * 1e6, "alg_bw": algorithm, "bus_bw": bus, "nwrong": wrong, **microseconds}


def _line(cells: Sequence[object]) -> str:
    """A line of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def write_beside(path: Path, text: str) -> Path:
    """Writes `text` to `path`, or to path.0, path.1, ... if that exists. Whole or not at all."""
    partial = beside(path)
    try:
        with partial.open("x") as file:
            file.write(text)
        candidate, number = path, 0
        while True:
            try:
                os.link(partial, candidate)  # fails if the name is taken, even by a concurrent process
                return candidate
            except FileExistsError:
                candidate = path.with_name(f"{path.name}.{number}")
                number += 1
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
