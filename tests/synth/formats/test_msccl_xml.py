"""MSCCL XML: production files are proven and run right, files go out and come back, malformed ones get a sentence."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from syntony import _core
from syntony.base.files.xml_document import XmlError
from syntony.synth.checker import check_program, least_fifo_depth
from syntony.synth.formats.export_options import ExportOptions
from syntony.synth.formats.msccl.xml_export import DIALECTS, msccl_xml_text
from syntony.synth.formats.msccl.xml_file import MscclError, read_msccl_xml
from syntony.synth.model.instructions import Opcode
from syntony.synth.model.program import Program
from syntony.synth.model.target import TargetError
from tests.synth import random_executor
from tests.synth.programs import exchange, relay_broadcast

FOREIGN = Path(__file__).parents[4] / "shared" / "foreign" / "msccl-xml"
NAMES = (
    *(f"ncv4-{name}" for name in ("ag_hier_4_LL", "ag_hier_4_Simple", "ar_hier_12_Simple", "ar_tree_12_LL")),
    *(f"ndv4-ag-{name}" for name in ("1k-512k", "1m", "2m", "4m", "8m", "16m", "32m-1g")),
    *(f"ndv4-{name}" for name in ("a2a2ll", "a2a4ll", "ap-1pass", "ap2ll", "ap4ll", "r48ll", "r48ll128")),
)


def foreign(name: str) -> Path:
    path = FOREIGN / f"{name}.xml"
    if not path.exists():
        pytest.skip("the foreign files are not beside this checkout")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_production_files_are_proven_and_run_right(name: str) -> None:
    program = read_msccl_xml(foreign(name))
    assert check_program(program).fault is None
    assert program.fifo_depth == (2 if name == "ndv4-ag-32m-1g" else 1)
    assert program.in_place != program.out_of_place
    random_executor.run(program, program.in_place, random.Random(name))


def test_a_shallow_fifo_deadlocks() -> None:
    verdict = check_program(read_msccl_xml(foreign("ndv4-ag-32m-1g")), 1)
    assert not verdict.valid
    assert "deadlock at FIFO depth 1" in (verdict.fault or "")
    assert verdict.timeline[-1].startswith("circle: rank 0 lane 0 -> rank 1 lane 0 -> ")


def test_fused_reductions_are_taken_in_the_order_of_ranks() -> None:
    """All ranks sum all contributions by themselves: only one order makes them equal to the bit."""
    program = read_msccl_xml(foreign("ndv4-ap-1pass"))
    reductions = program.field("opcode") == Opcode.reduce
    assert set(program.field("operand_count")[reductions].tolist()) == {7}
    assert not program.rounds_per_hop
    assert not (program.field("opcode") == Opcode.nop).any()


@pytest.mark.parametrize("name", NAMES)
def test_production_files_go_out_and_come_back(name: str, tmp_path: Path) -> None:
    program = read_msccl_xml(foreign(name))
    (tmp_path / "out.xml").write_text(msccl_xml_text(program))
    again = read_msccl_xml(tmp_path / "out.xml")
    assert check_program(again).fault is None
    assert again.collective == program.collective
    assert len(again.instructions) == len(program.instructions)
    assert (again.fifo_depth, again.in_place, again.out_of_place) == (
        program.fifo_depth,
        program.in_place,
        program.out_of_place,
    )


def round_trip(program: Program, folder: Path) -> Program:
    (folder / "out.xml").write_text(msccl_xml_text(program))
    return read_msccl_xml(folder / "out.xml")


@pytest.mark.parametrize(("name", "collective"), [(a.name, c) for a in _core.algorithms() for c in a.collectives])
def test_built_programs_go_out_and_come_back(name: str, collective: str, tmp_path: Path) -> None:
    for ranks in (2, 3, 6):
        program = _core.build(name, collective, ranks)
        again = round_trip(program, tmp_path)
        assert check_program(again).fault is None
        for seed, in_place in ((0, False), (1, True)):
            random_executor.run(again, in_place, random.Random(seed))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects_say_the_same(dialect: str, tmp_path: Path) -> None:
    for algorithm, collective in (("ring", "all_reduce"), ("direct", "reduce_scatter"), ("two_shot", "all_reduce")):
        program = _core.build(algorithm, collective, 4)
        options = ExportOptions(in_place=False)
        (tmp_path / "one.xml").write_text(msccl_xml_text(program, dialect, options))
        (tmp_path / "other.xml").write_text(msccl_xml_text(program, "azure", options))
        assert read_msccl_xml(tmp_path / "one.xml") == read_msccl_xml(tmp_path / "other.xml")


def test_dialects_differ() -> None:
    program = _core.build("direct", "reduce_scatter", 3)
    options = ExportOptions(1024, 1 << 20, "LL", in_place=True)
    head = {dialect: msccl_xml_text(program, dialect, options).splitlines()[0] for dialect in DIALECTS}
    for line in head.values():
        assert 'proto="LL"' in line
        assert 'inplace="1"' in line
        assert 'minBytes="1024" maxBytes="1048576"' in line
    assert 'coll="reducescatter"' in head["azure"]
    assert head["azure"] == head["rccl"]
    assert 'outofplace="0"' in head["azure"]
    assert 'coll="reduce_scatter"' in head["microsoft"]
    assert "outofplace" not in head["microsoft"]
    assert "nchunksperloop" not in head["op"]
    assert '<op step="0" type="s" buf="i" off="1"/>' in msccl_xml_text(program, "op", options)


@pytest.mark.parametrize(
    ("collective", "ranks", "dialect", "options", "told"),
    [
        ("gather", 3, "microsoft", {}, "dialect microsoft has no gather; it has all_reduce, all_gather"),
        ("all_to_all", 3, "azure", {"in_place": True}, "would lay blocks of different ranks upon each other"),
        ("all_gather", 40, "rccl", {}, "target 'rccl': rank 0 has more than 32 lanes on channel 0"),
    ],
)
def test_what_a_dialect_cannot_say_is_refused(
    collective: str, ranks: int, dialect: str, options: dict[str, bool], told: str
) -> None:
    with pytest.raises(TargetError) as error:
        msccl_xml_text(_core.build("direct", collective, ranks), dialect, ExportOptions(**options))
    assert told in str(error.value)


def test_sizes_must_be_a_range() -> None:
    with pytest.raises(TargetError, match=r"the range of sizes 2\.\.1 is empty"):
        ExportOptions(2, 1)


def test_n_ary_reductions_keep_their_operands(tmp_path: Path) -> None:
    again = round_trip(exchange(5), tmp_path)
    assert check_program(again).fault is None
    reductions = again.field("opcode") == Opcode.reduce
    assert again.field("operand_count")[reductions].max() >= 3


def test_what_msccl_cannot_say_is_refused() -> None:
    with pytest.raises(TargetError, match="MSCCL XML has no root; it must be 0, not 1"):
        msccl_xml_text(_core.build("ring", "broadcast", 3, 1))


def test_chunks_of_different_weights_become_equal_ones(tmp_path: Path) -> None:
    program = relay_broadcast()
    assert sorted(program.chunks[:, 1]) == [1, 2]
    again = round_trip(program, tmp_path)
    assert check_program(again).fault is None
    assert again.chunks[:, 1].tolist() == [1, 1, 1]


# --- a small file, changed --------------------------------------------------------------------------------------------

PAIR = """<algo name="pair" nchunksperloop="1" ngpus="2" coll="allreduce" inplace="0" outofplace="1" proto="LL">
  <gpu id="0" i_chunks="1" o_chunks="1" s_chunks="1">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
    <tb id="3" send="-1" recv="1" chan="0">
      <step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="5" send="-1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="3" deps="0" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="1" o_chunks="1" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrc" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"""


def pair(folder: Path, *edits: tuple[str, str]) -> Program:
    text = PAIR
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "pair.xml").write_text(text)
    return read_msccl_xml(folder / "pair.xml")


def test_pair(tmp_path: Path) -> None:
    program = pair(tmp_path)
    assert check_program(program).fault is None
    assert str(program).splitlines()[1:9] == [
        "rank 0",
        "  lane 0",
        "      0  send input[0] -> rank 1",
        "  lane 1",
        "      0  recv scratch[0] = message of rank 1",
        "  lane 2",
        "      0  copy output[0] = input[0]",
        "      1  reduce output[0] = output[0] + scratch[0]    after 1.0",
    ]


def test_newer_dialect(tmp_path: Path) -> None:
    """<op> with defaults left out, one buf/off, no nchunksperloop, no outofplace."""
    text = PAIR.replace("<step s=", "<op step=").replace(' nchunksperloop="1"', "").replace(' outofplace="1"', "")
    text = re.sub(r'(type="s" )srcbuf="i" srcoff="0" dstbuf="s" dstoff="0"', r'\1buf="i" off="0"', text)
    text = re.sub(r'(type="r" )srcbuf="i" srcoff="0" dstbuf="s" dstoff="0"', r'\1buf="s" off="0"', text)
    text = text.replace(' cnt="1"', "").replace(' depid="-1" deps="-1"', "").replace(' hasdep="0"', "")
    assert 'buf="s" off="0"' in text
    (tmp_path / "new.xml").write_text(text)
    assert read_msccl_xml(tmp_path / "new.xml") == pair(tmp_path)


def test_initial_copies(tmp_path: Path) -> None:
    """<copy> comes before everything else: here it stands for the `cpy` step."""
    copy_step = re.search(r' *<step s="0" type="cpy".*\n', PAIR)
    assert copy_step
    program = pair(
        tmp_path,
        (copy_step.group(), ""),
        ('<step s="1" type="re"', '<step s="0" type="re"'),
        ('s_chunks="1">\n', 's_chunks="1">\n    <copy i_off="0" o_off="0"/>\n'),
    )
    assert check_program(program).fault is None
    assert program.instructions[0, :3].tolist() == [0, 0, Opcode.copy]


def test_a_wait_that_nobody_ends(tmp_path: Path) -> None:
    with pytest.raises(MscclError) as error:
        pair(tmp_path, ('hasdep="1"', 'hasdep="0"'))
    assert str(error.value) == (
        f'{tmp_path}/pair.xml:11: <step>: it waits forever for step 0 of <tb id="3">: '
        'no step from there on has hasdep="1"'
    )


def test_a_missing_dependency_is_a_race(tmp_path: Path) -> None:
    verdict = check_program(pair(tmp_path, ('depid="3" deps="0"', 'depid="-1" deps="-1"')))
    assert not verdict.valid
    assert "scratch[0] of rank 0 (chunk 0)" in (verdict.fault or "")


def test_waits_for_the_own_block_say_nothing(tmp_path: Path) -> None:
    """Also when what they name is a `nop` that is folded away."""
    nop = (
        '<step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="-1" deps="-1" hasdep="0"/>'
    )
    send = '<step s="{}" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="{}" deps="{}"'
    edit = (send.format(0, -1, -1), f"{nop}\n      {send.format(1, 0, 0)}")
    assert pair(tmp_path, edit) == pair(tmp_path)


def test_in_place_is_one_memory(tmp_path: Path) -> None:
    """In place, i and o are the same: adding the own input to the output would count it twice."""
    edits = (('inplace="0" outofplace="1"', 'inplace="1" outofplace="0"'),)
    assert check_program(pair(tmp_path, *edits)).fault is not None  # the send of i races with the sum into o
    ordered = (
        *edits,
        (
            'dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>\n    </tb>',
            'dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>\n    </tb>',
        ),
    )
    nop = '<step s="1" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="0" hasdep="0"/>'
    program = pair(tmp_path, *ordered, ('      <step s="1" type="re"', f'      {nop}\n      <step s="2" type="re"'))
    assert check_program(program).fault is None
    assert np.count_nonzero(program.field("opcode") == Opcode.nop) == 0
    wrong = program.replace(in_place=False, out_of_place=True)
    assert check_program(wrong).valid
    assert least_fifo_depth(program) == 1


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (("<algo ", "<algorithm "), "pair.xml:20: not well-formed XML: mismatched tag, column 3"),
        (('ngpus="2"', 'ngpus="two"'), 'pair.xml:1: <algo>: ngpus="two" is not an integer'),
        (('ngpus="2"', 'ngpus="3"'), 'pair.xml:1: <algo>: ngpus="3", but there is no <gpu id="2">'),
        (
            ('coll="allreduce"', 'coll="custom"'),
            'pair.xml:1: <algo>: coll="custom" is not supported; supported are allreduce',
        ),
        (('coll="allreduce" ', ""), "pair.xml:1: <algo>: attribute 'coll' is missing"),
        (('outofplace="1"', 'outofplace="0"'), 'inplace="0" and outofplace="0" leave no way to call it'),
        (('outofplace="1"', 'outofplace="7"'), 'outofplace="7" must be 0 or 1'),
        (('i_chunks="1"', 'i_chunks="2"'), 'pair.xml:2: <gpu>: i_chunks="2" must be 1 for all_reduce'),
        (('id="1" i_', 'id="0" i_'), 'pair.xml:14: <gpu>: id="0" must be a rank 0..1 that occurs once'),
        (('<tb id="3"', '<tb id="0"'), 'pair.xml:6: <tb>: id="0" occurs twice in <gpu id="0">'),
        (('send="1"', 'send="0"'), 'pair.xml:3: <tb>: send="0" must be another rank 0..1, or -1 for none'),
        (('send="1"', 'send="-1"'), 'pair.xml:4: <step>: type="s" needs a peer, but its <tb id="0"> has send="-1"'),
        (('type="s"', 'type="send"'), 'pair.xml:4: <step>: type="send" is not known; known are s, r, rcs'),
        (('srcoff="0"', 'srcoff="1"'), "pair.xml:4: <step>: uses i[1..1], but buffer i has 1 chunks"),
        (('srcbuf="i"', 'srcbuf="x"'), 'srcbuf="x" is not i (input), o (output) or s (scratch)'),
        (('cnt="1"', 'cnt="0"'), 'pair.xml:4: <step>: cnt="0" must be at least 1'),
        (('s="0" type="s"', 's="1" type="s"'), "pair.xml:4: <step>: is number 1, but stands at place 0"),
        (('depid="3"', 'depid="4"'), 'depid="4" deps="0" names a step that <gpu> does not have'),
        (('depid="3" deps="0"', 'depid="3" deps="-1"'), 'depid="3" and deps="-1" must both name a step'),
        (('ngpus="2"', 'ngpus="1000000000"'), 'ngpus="1000000000" is more than 4096'),
        (('s_chunks="1"', 's_chunks="1000000000"'), 's_chunks="1000000000" is more than 1048576'),
        (('type="s"', 'type="ra"'), 'type="ra" adds a residual that no collective has'),
        (("<step ", "<stop "), "pair.xml:4: <stop>: is not known inside <tb>; expected <step> or <op>"),
        (("</tb>", "text</tb>"), "holds the text 'text'"),
        (("<algo ", "<!DOCTYPE algo><algo "), "a document type declaration is not allowed"),
        (('nchunksperloop="1"', f'nchunksperloop="{1 << 30}"'), "is more than 1048576"),
    ],
)
def test_malformed(edit: tuple[str, str], told: str, tmp_path: Path) -> None:
    with pytest.raises(XmlError) as error:
        pair(tmp_path, edit)
    assert told in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "pair.xml:"))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(XmlError, match=r"none\.xml: cannot be read: No such file or directory"):
        read_msccl_xml(tmp_path / "none.xml")
