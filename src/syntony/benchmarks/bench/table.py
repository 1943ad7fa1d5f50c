"""nccl-tests' text format: its first thirteen columns are unchanged, so that scripts that parse it keep working.

They are followed by columns that only this bench has: the iterations' spread (-I) and, for every further contender, its
own time, median and check, with the ratio of its median to the first contender's.

On a terminal that is narrower than a row, type, operation and root are printed above their rows, and the columns behind
nccl-tests' get a line of their own:

    #       size     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
            1024     1.21    0.85    0.85       0     1.18    0.87    0.87       0
    #                gloo     52.1    50.9       0     1.20    42.4x
"""

from __future__ import annotations

import datetime
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from syntony.base.answer import NARROW, wrapped
from syntony.benchmarks.bench.measure import Result, Timing
from syntony.benchmarks.bench.measurement import Case
from syntony.benchmarks.bench.options import Options
from syntony.benchmarks.bench.shapes import Shape

_FORM = f"  {'time':>7}  {'algbw':>6}  {'busbw':>6}  {'#wrong':>6}"
_FORM_UNITS = f"  {'(us)':>7}  {'(GB/s)':>6}  {'(GB/s)':>6}  {'':>6}"


def bandwidths(shape: Shape, ranks: int, moved: int, seconds: float) -> tuple[float, float]:
    """(algbw, busbw) in GB/s."""
    algorithm = moved / seconds / 1e9 if seconds else 0.0
    return algorithm, algorithm * float(shape.bus_factor(ranks))


def too_wide(options: Options, rivals: int) -> bool:
    """Whether stdout is a terminal that is narrower than a row; a file or a pipe never is."""
    wide = 57 + 2 * 33 + 36 * options.per_iteration + 44 * rivals + 21 * options.timestamps
    return sys.stdout.isatty() and shutil.get_terminal_size((wide + 1, 24)).columns <= wide


def heading(
    options: Options,
    devices: Sequence[dict[str, Any]],
    labels: Sequence[str],
    remarks: Sequence[str] = (),
    narrow: bool = False,
) -> str:
    """Everything above the first row. `labels` are the contenders', the first being Syntony's."""
    step = f"{options.step_bytes}(bytes)" if options.step_factor is None else f"{options.step_factor}(factor)"
    effort = options.effort
    plan = (
        f"# nThread {options.threads} nGpus {int(options.device == 'cuda')} minBytes {options.min_bytes}"
        f" maxBytes {options.max_bytes} step: {step} warmup iters: {effort.warmups} iters: {effort.iterations}"
        f" agg iters: 1 validation: {effort.checks} graph: {options.graph}"
    )
    lines = ["# syntony bench, in the table format of nccl-tests 2.19.6"]
    lines += [f"# Collective test starting: {options.shape.name} ({labels[0]})", plan, "#", "# Using devices"]
    lines += [
        f"#  Rank {device['rank']:2d} Group {device['group']:2d} Pid {device['pid']:6d} on {device['hostname']:>10}"
        f" device {device['device']:2d} [{device['device_hex']}] {device['device_info']}"
        for device in devices
    ]
    lines += ["#", *(f"# {remark}" for remark in remarks), *(["#"] if remarks else [])]
    if narrow:
        lines = [part for line in lines for part in _broken(line)]
        return "\n".join([*lines, *_narrow_heading(options, labels)])
    groups = f"#{'':57}  {'out-of-place':>31}  {'in-place':>31}"
    names = f"#{'size':>12}  {'count':>12}  {'type':>8}  {'redop':>6}  {'root':>6}{_FORM}{_FORM}"
    units = f"#{'(B)':>12}  {'(elements)':>12}  {'':>8}  {'':>6}  {'':>6}{_FORM_UNITS}{_FORM_UNITS}"
    if options.per_iteration:
        groups += f"  {'iterations':>34}"
        names += f"  {'i_min':>7}  {'i_max':>7}  {'i_p99':>7}  {'i_cv%':>7}"
        units += f"  {'(us)':>7}  {'(us)':>7}  {'(us)':>7}  {'':>7}"
    for rival in labels[1:]:
        groups += f"  {f'{rival} in the same run':>42}"
        names += f"  {'time':>7}  {'p50':>7}  {'#wrong':>6}  {'our p50':>7}  {'ratio':>8}"
        units += f"  {'(us)':>7}  {'(us)':>7}  {'':>6}  {'(us)':>7}  {'(x ours)':>8}"
    return "\n".join([*lines, groups, names, units])


def _broken(line: str) -> list[str]:
    """Breaks a line of the heading into lines that fit."""
    return [part if part.startswith("#") else f"#{part}" for part in wrapped(line, most=NARROW - 1)] or [line]


def _narrow_heading(options: Options, labels: Sequence[str]) -> list[str]:
    lines = [
        f"#{'':11}  {'out-of-place':>31}  {'in-place':>31}",
        f"#{'size':>11}{_FORM}{_FORM}",
        f"#{'(B)':>11}{_FORM_UNITS}{_FORM_UNITS}",
    ]
    if options.per_iteration:
        lines.append(f"#{'iterations':>20}  {'i_min':>7}  {'i_max':>7}  {'i_p99':>7}  {'i_cv%':>7}")
    if labels[1:]:
        lines.append(f"#{'in the same run':>20}  {'time':>7}  {'p50':>7}  {'#wrong':>6}  {'our p50':>7}  {'x ours':>8}")
    return lines


def narrow_group(case: Case) -> str:
    """The common fields of a narrow table's rows."""
    root = f", root {case.root}" if case.shape.rooted else ""
    return f"# {case.element.name}{f', {case.operation}' if case.operation else ''}{root}"


def narrow_row(case: Case, results: Sequence[Result], labels: Sequence[str], ranks: int, options: Options) -> str:
    """One size of the narrow table, in one or several lines."""
    moved = case.bytes_moved(ranks)
    first, *rivals = results
    line = f" {moved:>11}"
    line += _form(case.shape, ranks, moved, first.out_of_place) + _form(case.shape, ranks, moved, first.in_place)
    lines = [line]
    if options.per_iteration:
        lines.append(f"#{'':20}{_spread(first.best_form)}")
    lines += [f"#{label[:20]:>20}{_rival(first, rival)}" for label, rival in zip(labels[1:], rivals, strict=True)]
    if options.timestamps:
        lines.append(f"#{'':20}  {datetime.datetime.now():%Y-%m-%d %H:%M:%S}")
    return "\n".join(lines)


def row(case: Case, results: Sequence[Result], ranks: int, options: Options) -> str:
    """One line of the table."""
    moved = case.bytes_moved(ranks)
    operation = case.operation or "none"
    root = case.root if case.shape.rooted else -1
    first, *rivals = results
    line = f" {moved:>12}  {case.block:>12}  {case.element.name:>8}  {operation:>6}  {root:>6}"
    line += _form(case.shape, ranks, moved, first.out_of_place) + _form(case.shape, ranks, moved, first.in_place)
    if options.per_iteration:
        line += _spread(first.best_form)
    line += "".join(_rival(first, rival) for rival in rivals)
    if options.timestamps:
        line += f"  {datetime.datetime.now():%Y-%m-%d %H:%M:%S}"
    return line


def footing(shape: Shape, wrong: int, average_bus_bandwidth: float) -> str:
    """Everything below the last row."""
    verdict = "OK" if wrong == 0 else "FAILED"
    return "\n".join(
        [
            f"# Out of bounds values : {wrong} {verdict}",
            f"# Avg bus bandwidth    : {average_bus_bandwidth:g}",
            f"# Collective test concluded: {shape.name}",
        ]
    )


def _form(shape: Shape, ranks: int, moved: int, timing: Timing | None) -> str:
    if timing is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
    algorithm, bus = bandwidths(shape, ranks, moved, timing.mean)
    return f"  {_number(timing.mean * 1e6, 7)}  {_number(algorithm, 6)}  {_number(bus, 6)}  {_wrong(timing)}"


def _spread(timing: Timing | None) -> str:
    if timing is None:
        return f"  {'N/A':>7}" * 4
    cells = (timing.least * 1e6, timing.most * 1e6, timing.p99 * 1e6, timing.variation * 100)
    return "".join(f"  {_number(cell, 7)}" for cell in cells)


def _rival(first: Result, rival: Result) -> str:
    ours, theirs = same_form(first, rival)
    if ours is None or theirs is None:
        return f"  {'N/A':>7}  {'N/A':>7}  {'N/A':>6}  {'N/A':>7}  {'N/A':>8}"
    times = "".join(f"  {_number(seconds * 1e6, 7)}" for seconds in (theirs.mean, theirs.p50))
    ratio = theirs.p50 / ours.p50 if ours.p50 else 0.0
    return f"{times}  {_wrong(theirs)}  {_number(ours.p50 * 1e6, 7)}  {_number(ratio, 8)}"


def same_form(first: Result, rival: Result) -> tuple[Timing | None, Timing | None]:
    """Both contenders' timings in a form that both have: out of place if possible."""
    for ours, theirs in ((first.out_of_place, rival.out_of_place), (first.in_place, rival.in_place)):
        if ours is not None and theirs is not None:
            return ours, theirs
    return None, None


def _wrong(timing: Timing) -> str:
    return f"{'N/A' if timing.wrong is None else timing.wrong:>6}"


def _number(value: float, width: int) -> str:
    """A number with as many decimals as fit into the column, at most two."""
    for decimals in (2, 1, 0):
        text = f"{value:.{decimals}f}"
        if len(text) <= width:
            break
    return f"{text:>{width}}"
