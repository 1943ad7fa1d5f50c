"""The table of formats: files are recognized by what is in them, forced on request, and refused with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.topologies import file_format, parse
from syntony.topologies.readers import FORMATS, read

FILES = {
    "json": file_format.to_json(parse("ring:3")),
    "taccl-json": '{"name": "box", "gpus_per_node": 5, "alpha": 1, "node_betas_list": [8], "node_invbws_list": [9]}',
    "nccl-xml": '<?xml version="1.0"?>\n<!-- of\n a box -->\n<system version="1"><cpu/><cpu numaid="1"/></system>',
    "lstopo-xml": '<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0"></topology>',
    "graphml": '<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="undirected">'
    '<node id="a"/><node id="b"/><edge source="a" target="b"/></graph></graphml>',
    "nvidia-smi": "GPU 0: NVIDIA A40 (UUID: GPU-1)\n\tGPU0\tGPU1\nGPU0\tX\tNV4\nGPU1\tNV4\tX\n",
    "toml": "# by hand\nranks = 6\n[[cables]]\nring = 'rank0-5'\nbandwidth = '1GB/s'\nalpha = 1e-6\n",
}
RANKS = {"json": 3, "taccl-json": 5, "nccl-xml": 2, "lstopo-xml": 1, "graphml": 2, "nvidia-smi": 2, "toml": 6}


def _sentence(path: Path, form: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        read(path, form)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["machine", "machine.txt", "machine.xml", "machine.json"])
def test_a_file_is_recognized_whatever_it_is_called(form: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(FILES[form], encoding="utf-8")
    assert read(path).ranks == read(path, form).ranks == parse(f"file:{path}").ranks == RANKS[form]


@pytest.mark.parametrize("form", FORMATS)
def test_a_byte_order_mark_and_blank_lines_do_not_hide_a_format(form: str, tmp_path: Path) -> None:
    path = tmp_path / "machine"
    path.write_text("\n\n" + FILES[form].removeprefix('<?xml version="1.0"?>'), encoding="utf-8")
    assert read(path).ranks == RANKS[form]


@pytest.mark.parametrize("form", ["nccl-xml", "lstopo-xml", "nvidia-smi"])
def test_a_machine_without_a_name_is_called_as_its_file(form: str, tmp_path: Path) -> None:
    path = tmp_path / "machine.of.ours"
    path.write_text(FILES[form], encoding="utf-8")
    assert read(path).name == "machine.of.ours"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("forced", FORMATS)
def test_a_format_can_be_forced(form: str, forced: str, tmp_path: Path) -> None:
    path = tmp_path / "machine"
    path.write_text(FILES[form], encoding="utf-8")
    if form != forced:
        assert str(path) in _sentence(path, forced)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "not recognized as a topology; known formats are json (Syntony's topology file), nccl-xml (NCCL's"),
        (b"\x00\xff" * 100, "not recognized as a topology; known formats are"),
        (b"<algo nchannels='1'/>", "not recognized as a topology: <algo> is an MSCCL schedule; known formats are"),
        (b"<!-- hello -->\n<html>", "not recognized as a topology: it begins with <html>; known formats are"),
        (b"GPU0 GPU1\nnothing", "not recognized"),
        (b"<!DOCTYPE x [" + b"<!ENTITY a 'b'>" * 10_000, "not recognized"),
    ],
)
def test_what_is_no_topology_is_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "machine"
    path.write_bytes(content)
    assert sentence in _sentence(path)


def test_huge_files_are_not_read_to_their_end(tmp_path: Path) -> None:
    path = tmp_path / "huge.xml"
    with path.open("wb") as file:
        file.write(b'<system version="1">')
        file.truncate(1 << 40)  # a hole: it takes no room
    assert "too large for NCCL's or RCCL's topology file" in _sentence(path)
    assert "16 MiB are read at most" in _sentence(path)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    assert _sentence(tmp_path / "absent.xml").endswith("absent.xml: cannot be read: No such file or directory")
    assert "no format 'yaml'; there are json, nccl-xml" in _sentence(tmp_path / "absent.xml", "yaml")
