"""The table of all formats in which a topology can be read from a file: ours, and other tools' descriptions of hosts.

To add one: a file here with a function from the file's bytes to the Topology, and its line in the table. A file is
recognized by its beginning, not by its name. A folder is the root of a Linux machine and contains `sys`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from syntony.base.files.strict_json import FileError
from syntony.base.files.text_file import decoded
from syntony.base.wording import unknown
from syntony.topologies.file_format import from_json
from syntony.topologies.readers import graphml, linux_sys, lstopo_xml, nccl_xml, nvidia_smi, taccl_json, toml_text
from syntony.topologies.topology import Topology, TopologyError

_HEAD = 1 << 16  # leading bytes from which a format is recognized
_MEBI = 1 << 20


@dataclass(frozen=True)
class Format:
    """One kind of file. `begins` recognizes it by its first 64 KiB; `most` is its largest size in bytes."""

    name: str
    summary: str
    begins: Callable[[str], bool]
    read: Callable[[bytes, str], Topology]
    most: int


def _json(content: bytes, where: str) -> Topology:
    try:
        text = decoded(content, where)
    except FileError as error:
        raise TopologyError(str(error)) from None
    return from_json(text, where)


def _is_ours(head: str) -> bool:
    return head.startswith("{") and not taccl_json.recognizes(head)


FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        Format("json", "Syntony's topology file", _is_ours, _json, 1024 * _MEBI),
        Format(
            "nccl-xml",
            "NCCL's or RCCL's topology file, as NCCL_TOPO_DUMP_FILE writes it",
            lambda head: _first_element(head) == "system",
            nccl_xml.read,
            16 * _MEBI,
        ),
        Format(
            "lstopo-xml",
            "hwloc's XML, as lstopo --of xml writes it",
            lambda head: _first_element(head) == "topology",
            lstopo_xml.read,
            16 * _MEBI,
        ),
        Format(
            "nvidia-smi",
            "the text that nvidia-smi topo -m prints",
            nvidia_smi.recognizes,
            nvidia_smi.read,
            16 * _MEBI,
        ),
        Format(
            "graphml",
            "GraphML, as networkx writes it",
            lambda head: _first_element(head) == "graphml",
            graphml.read,
            64 * _MEBI,
        ),
        Format("taccl-json", "TACCL's topology profile", taccl_json.recognizes, taccl_json.read, 16 * _MEBI),
        Format("toml", "a few lines of TOML, written by hand", toml_text.recognizes, toml_text.read, 16 * _MEBI),
    )
}


def read(path: str | Path, form: str | None = None) -> Topology:
    """The topology of a file in any of the formats, or of a machine's folder.

    `form` names a format of the table, to skip recognition. Raises UserError that names the file and the line or field.
    """
    if form is not None and form not in FORMATS:
        raise TopologyError(unknown("format", form, FORMATS))
    try:
        if Path(path).is_dir() and form is None:
            return linux_sys.read_machine(Path(path))
        with Path(path).open("rb") as file:
            head = file.read(_HEAD)
            chosen = _recognized(head, str(path)) if form is None else FORMATS[form]
            content = head + file.read(chosen.most - len(head) + 1)
    except OSError as error:
        raise TopologyError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > chosen.most:
        raise TopologyError(f"{path}: too large for {chosen.summary}; {chosen.most // _MEBI} MiB are read at most")
    return chosen.read(content, str(path))


def _recognized(head: bytes, path: str) -> Format:
    text = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    for form in FORMATS.values():
        if form.begins(text):
            return form
    if path.endswith(".json"):
        return FORMATS["json"]
    known = ", ".join(f"{form.name} ({form.summary})" for form in FORMATS.values())
    raise TopologyError(f"{path}: not recognized as a topology{_seen(text)}; known formats are {known}")


def _seen(text: str) -> str:
    element = _first_element(text)
    if element == "algo":
        return ": <algo> is an MSCCL schedule"
    return f": it begins with <{element}>" if element else ""


_PROLOGUE = re.compile(r"(?:\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)*", re.DOTALL)


def _first_element(head: str) -> str | None:
    """The name of an XML document's first element."""
    start = _PROLOGUE.match(head)
    found = re.compile(r"<([A-Za-z_][\w.-]{0,40})").match(head, start.end() if start else 0)
    return found.group(1) if found else None
