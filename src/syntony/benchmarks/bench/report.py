"""A benchmark as a Markdown page: `--results FOLDER` writes FOLDER/DATE-DEVICE-COLLECTIVE.md.

The meaning of figures depends on when, where and how they were measured, so the page states that first, and the remarks
that the table printed ("one GPU, several ranks") precede the figures. Bytes, microseconds, GB/s.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from syntony import _core

_FORMS = (("out_of_place", "out of place"), ("in_place", "in place"))


def page(document: dict[str, Any]) -> str:
    """The page of a Record's document."""
    config, rows = document["config"], document["results"]
    devices = config["devices"]
    title = f"# {document['collective']}, {len(devices)} ranks"
    kinds = sorted({device["device_info"] for device in devices})
    places = sorted({(device["hostname"], device["device_hex"]) for device in devices})
    facts = [
        f"- **When:** {document['start_time']}",
        f"- **Where:** {' and '.join(kinds)}: {len(places)} for {len(devices)} ranks; "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, sums by {_core.kernel_isa()} kernels",
        f"- **Versions:** {document['nccl_version']}, Python {platform.python_version()}",
        *(f"- **Note:** {remark}" for remark in document["notes"]),
        f"- **How:** `{' '.join([Path(document['args'][0]).name, *document['args'][1:]])}`; warm-ups "
        f"{config['warmup_iters']}, iterations {config['iterations']}, graph replays {config['graph']}; "
        f"results checked: {'yes' if config['validation'] else 'no'}; "
        f"wrong elements: {document['out_of_bounds']['count']}",
    ]
    rivals = [peer["name"] for peer in rows[0]["peers"]] if rows else []
    headings = ["bytes", "type", "op", "form", f"{rows[0]['experiment_name']} us" if rows else "us", "algbw", "busbw"]
    headings += [cell for rival in rivals for cell in (f"{rival} us", "x ours")]
    lines = [_line(headings), _line(["---:", "---", "---", "---", *["---:"] * (len(headings) - 4)])]
    lines += [_line(_cells(row, form, name)) for row in rows for form, name in _FORMS if row[form] is not None]
    return "\n".join([title, "", *facts, "", *lines, ""])


def name(document: dict[str, Any]) -> str:
    """The page's file name."""
    device = document["config"]["devices"][0]["device_info"]
    words = f"{document['start_time'][:10]}-{device}-{document['collective']}"
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", words) + ".md"


def _cells(row: dict[str, Any], form: str, name: str) -> list[str]:
    ours = row[form]
    cells = [str(row["size"]), row["type"], row["redop"], name]
    cells += [f"{ours['time']:.2f}", f"{ours['alg_bw']:.2f}", f"{ours['bus_bw']:.2f}"]
    for peer in row["peers"]:
        theirs = peer[form]
        cells += ["", ""] if theirs is None else [f"{theirs['time']:.2f}", f"{theirs['time'] / ours['time']:.2f}"]
    return cells


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
