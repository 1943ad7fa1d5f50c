"""The simulator of Programs: closed forms, agreement with Schedules, skipping, foreign files, the verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony import _core
from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.greedy import run as greedy
from syntony.synth.formats import schedule_file
from syntony.synth.formats.loading import load
from syntony.synth.formats.program_file import write_program
from syntony.synth.lowering.lower import lower
from syntony.synth.model.program import Program
from syntony.synth.model.target import CONVERSION
from syntony.synth.simulation.program_simulator import simulate_program
from syntony.synth.simulation.result import StuckError
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.topologies.parse import parse
from tests.sampled import examples
from tests.synth.networks import collectives, networks
from tests.synth.programs import exchange, one_sided_gather, program, relay_broadcast, ring_all_reduce
from tests.synth.schedules import SCHEDULES

FOREIGN = Path(__file__).parents[3].parent / "shared" / "foreign" / "msccl-xml"
ALPHA, RATE = 1e-6, 1e9
WHOLE = 1 << 40
"""A slice that no chunk exceeds."""


def built(algorithm: str, collective: str, ranks: int) -> Program:
    return _core.build(algorithm, collective, ranks)


@pytest.mark.parametrize("ranks", [3, 8])
@pytest.mark.parametrize("size", [8, 1 << 20])
def test_ring(ranks: int, size: int) -> None:
    topology = parse(f"ring:{ranks}")
    step = ALPHA + size / ranks / RATE
    for collective, steps in (("all_gather", ranks - 1), ("reduce_scatter", ranks - 1), ("all_reduce", 2 * ranks - 2)):
        found = simulate_program(built("ring", collective, ranks), topology, size, WHOLE)
        assert found.seconds == pytest.approx(steps * step)
        assert found.busbw == pytest.approx(size * (ranks - 1) / ranks * (steps / (ranks - 1)) / found.seconds)


@pytest.mark.parametrize("slice_bytes", [1 << 10, 1 << 14, WHOLE])
def test_direct_is_one_hop_whatever_the_slice(slice_bytes: int) -> None:
    """Slices follow one another without a gap while the FIFO is deep enough: their number costs nothing."""
    size, ranks = 1 << 18, 4
    found = simulate_program(built("direct", "all_gather", ranks), parse(f"full:{ranks}"), size, slice_bytes, 64)
    assert found.seconds == pytest.approx(ALPHA + size / ranks / RATE)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_credits_limit_what_is_on_the_way(depth: int) -> None:
    """One byte per slice, alpha as long as 1000 bytes: a window of `depth` messages goes out every 1 + 1000 bytes."""
    root, leaf = {"op": "send", "src": ["input", 1], "to": 1}, {"op": "recv", "dst": ["output", 0], "from": 0}
    pair = program("scatter", [[0, 1], [1, 1]], [([0, 1], [0], [], [[root]]), ([], [1], [], [[leaf]])])
    windows = 4
    found = simulate_program(pair, parse("full:2"), 2 * depth * windows, 1, depth, every_message=True)
    assert len(found.messages.row) == depth * windows
    assert found.seconds == pytest.approx((windows * (1 + 1000) + depth - 1) / RATE)


def test_a_relay_passes_slices_on() -> None:
    """Two hops, chunks of one and two thirds in slices of an eighth: the second hop runs one slice behind."""
    size = 24 << 10
    found = simulate_program(relay_broadcast(), parse("mesh:3"), size, size // 24, 1000)
    assert found.seconds > 2 * ALPHA + size / RATE
    assert found.seconds < 2 * ALPHA + (size + 3 * size / 24) / RATE
    whole = simulate_program(relay_broadcast(), parse("mesh:3"), size, WHOLE)
    assert whole.seconds == pytest.approx(2 * ALPHA + (size + size * 2 / 3) / RATE)


def test_one_sided_moves_both_ways() -> None:
    """Rank 2 signals, rank 0 reads its block: two messages one after another; rank 1 writes meanwhile."""
    size = 3000
    found = simulate_program(one_sided_gather(), parse("full:3"), size, every_message=True)
    assert found.seconds == pytest.approx(2 * ALPHA + 1000 / RATE)
    links = {(link.src, link.dst): link.id for link in parse("full:3").links}
    assert {link for link in range(6) if found.busy[link]} == {links[1, 0], links[2, 0]}


# Lowering keeps lanes and routes, so both simulators tell one story; in general a Program may be the slower one, where
# its FIFOs are short or a message waits behind another for its slot.
TOLERANCE = 1e-9


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("size", [64, 1 << 22])
def test_lowered_schedules_agree_with_their_schedule(name: str, size: int) -> None:
    schedule = SCHEDULES[name]()
    there = simulate(schedule, size).seconds
    here = simulate_program(lower(schedule, CONVERSION), schedule.topology, size, WHOLE, 1000).seconds
    assert here == pytest.approx(there, rel=TOLERANCE)


@examples(40)
@given(data=st.data(), size=st.sampled_from([1, 1000]), slice_bytes=st.sampled_from([7, 100, WHOLE]))
def test_no_program_beats_the_bound_and_skipping_changes_nothing(
    data: st.DataObject, size: int, slice_bytes: int
) -> None:
    topology = data.draw(networks())
    collective = data.draw(collectives(topology))
    lowered = lower(greedy(topology, collective, size, Budget()), CONVERSION)
    whole = simulate_program(lowered, topology, size, slice_bytes, every_message=True)
    assert whole.seconds >= whole.bound_seconds * (1 - 1e-9)
    assert (whole.busy <= whole.seconds * (1 + 1e-9)).all()
    assert (whole.messages.start <= whole.messages.left).all()
    assert (whole.messages.left <= whole.messages.arrival).all()
    assert whole.messages.arrival.max(initial=0.0) == pytest.approx(whole.seconds)
    assert simulate_program(lowered, topology, size, slice_bytes).seconds == pytest.approx(whole.seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("algorithm", "collective", "topology"),
    [
        ("ring", "all_reduce", "ring:5"),
        ("ring", "broadcast", "ring:4"),
        ("dbt", "all_reduce", "star:6"),
        ("hierarchical", "all_reduce", "full:6"),
        ("direct", "all_to_all", "dgx-a100:1"),
    ],
)
def test_a_steady_state_is_skipped_exactly(algorithm: str, collective: str, topology: str) -> None:
    wires, size = parse(topology), 12_345_678
    made = built(algorithm, collective, wires.ranks)
    whole = simulate_program(made, wires, size, 1 << 15, every_message=True)
    skipped = simulate_program(made, wires, size, 1 << 15)
    assert skipped.seconds == pytest.approx(whole.seconds, rel=1e-9)
    assert skipped.busy == pytest.approx(whole.busy)
    assert len(whole.messages.row) > 500
    assert not len(skipped.messages.row)


def test_many_slices_are_not_lived_through() -> None:
    """2^29 slices per chunk: this ends only because steady states are skipped."""
    size = 1 << 32
    found = simulate_program(built("ring", "all_reduce", 8), parse("ring:8,alpha=1e-12"), size, 1)
    assert found.seconds == pytest.approx(14 * size / 8 / RATE, rel=0.01)


def test_messages_carry_what_moves() -> None:
    """Sizes of the messages, summed from the trace, are the bytes that links are busy with."""
    found = simulate_program(ring_all_reduce(4), parse("ring:4"), 4003, 64, every_message=True)
    streamed = np.zeros(8)
    for route, start, left in zip(found.messages.route, found.messages.start, found.messages.left, strict=True):
        (link,) = found.routes[route]
        streamed[link] += left - start
    assert streamed == pytest.approx(found.busy)
    assert found.busy.sum() == pytest.approx(2 * 3 * 4003 / RATE)


def test_short_fifos_are_named() -> None:
    with pytest.raises(StuckError, match=r"rank \d, lane 0, instruction .*FIFOs of 1 are too short; .* needs 2"):
        simulate_program(ring_all_reduce(4), parse("ring:4"), 1000, fifo_depth=1)


def test_topologies_must_fit() -> None:
    with pytest.raises(UserError, match="is for 4 ranks, but ring:5 has 5"):
        simulate_program(ring_all_reduce(4), parse("ring:5"), 8)
    with pytest.raises(UserError, match="from rank 0 to rank 2, but in ring:4 every path between them passes through"):
        simulate_program(exchange(4), parse("ring:4"), 8)


def foreign() -> list[Path]:
    return sorted(FOREIGN.glob("*.xml"))


@pytest.mark.skipif(not foreign(), reason="the MSCCL XML files of others are not here")
def test_there_are_eighteen_foreign_files() -> None:
    assert len(foreign()) == 18


@pytest.mark.parametrize("path", foreign(), ids=lambda path: path.stem)
def test_foreign_files_simulate(path: Path) -> None:
    loaded = load(path, target=CONVERSION)
    topology = parse("dgx-a100:1" if loaded.ranks == 8 else "full:4")
    times = []
    for size in (1 << 10, 1 << 30):
        found = simulate_program(loaded, topology, size)
        assert 0 < found.fraction <= 1 + 1e-9
        times.append(found.seconds)
    assert times[0] < times[1]


# --- the verb ---------------------------------------------------------------------------------------------------------


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(list(words)) == 0
    return json.loads(capsys.readouterr().out)


def test_the_verb_takes_programs_and_builders(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, trace = tmp_path / "p.json", tmp_path / "trace.json"
    write_program(built("ring", "all_gather", 4), path)
    found = answer(capsys, "simulate", str(path), "--topology", "ring:4", "--size", "1M", "--json")
    assert {"seconds", "algbw", "busbw", "bound_seconds", "fraction"} <= set(found)
    assert found["fraction"] == pytest.approx(found["bound_seconds"] / found["seconds"])
    words = ("simulate", "builder:ring:all_gather", "--topology", "ring:4", "--size", "1M", "--slice", "64K")
    again = answer(capsys, *words, "--trace", str(trace), "--json")
    assert again["seconds"] == pytest.approx(found["seconds"], rel=0.1)
    events = json.loads(trace.read_text())["traceEvents"]
    assert len([event for event in events if event["ph"] == "X"]) == 4 * 3 * 4
    assert main(list(words)) == 0
    assert "busiest  link" in capsys.readouterr().out


def test_the_verb_shows_utilization(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A ring keeps its forward links full, the others idle; of a schedule, through switches that store, in slices."""
    schedule_file.write(SCHEDULES["ring all_gather"](), tmp_path / "s.json")
    on_ring = ("simulate", "builder:ring:all_gather", "--topology", "ring:4", "--size", "1G", "--utilization")
    of_file = ("simulate", str(tmp_path / "s.json"), "--size", "1G", "--slice", "64M", "--utilization")
    for words in (on_ring, of_file, (*of_file, "--switching", "store-and-forward")):
        found = answer(capsys, *words, "--json")
        full = [link for link in found["links"] if link["busy"]]
        assert len(full) == 4
        assert len(found["links"]) == 8
        for link in full:
            bins = link["over_time"]
            assert bins == pytest.approx([1.0] * len(bins), rel=1e-2)
            assert sum(bins) * found["bin_seconds"] == pytest.approx(link["busy"])
        assert main(list(words)) == 0
        lines = capsys.readouterr().out.splitlines()
        assert sum(f"%  {'█' * 32}  link" in line for line in lines) == 4
        assert sum(f"  0.0%  {' ' * 32}  link" in line for line in lines) == 4


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("p.json", "p.json: a program does not name links; give a topology, such as --topology full:4"),
        ("p.json --topology ring:5", "p.json: the program is for 4 ranks, but ring:5 has 5"),
        ("p.json --topology ring:4 --fifo-depth 1", "p.json: rank 0, lane 0, instruction"),
        ("bad.json --topology ring:4", "yet the program does not say rounds_per_hop"),
        ("s.json --topology ring:4", "it is a schedule, which contains its topology (ring:4)"),
        ("s.json --fifo-depth 8", "and has no FIFOs; leave out --fifo-depth"),
        (
            "builder:ring:all_reduce --topology ring:4 --switching cut-through",
            "it is a program, whose messages cut through",
        ),
        ("s.json --trace nowhere/t.json", "there is no folder nowhere"),
        ("builder:ring:all_reduce", "give a topology, which also sets the number of ranks, such as --topology ring:8"),
        ("builder:rong:all_reduce --topology ring:4", "no algorithm 'rong' (did you mean ring?); there are direct,"),
        ("builder:two_shot:gather --topology ring:4", "no collective 'gather'; there are all_reduce for two_shot"),
        ("builder:ring --topology ring:4", "no collective ''; there are all_reduce,"),
        ("builder:direct:gather --topology ring:4", "builder:direct:gather: rank 2, lane 0, instruction 0 (send)"),
    ],
)
def test_mistakes_are_one_sentence(
    words: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_program(ring_all_reduce(4), tmp_path / "p.json")
    write_program(ring_all_reduce(4, rounds_per_hop=False), tmp_path / "bad.json")
    schedule_file.write(SCHEDULES["ring all_gather"](), tmp_path / "s.json")
    assert main(["simulate", *words.split()]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.err.count("\n") == 1
    assert not captured.out
    assert {path.name for path in tmp_path.iterdir()} == {"p.json", "bad.json", "s.json"}


@pytest.mark.parametrize("every_message", [False, True])
def test_a_late_rank(every_message: bool) -> None:
    """Nothing waits for it but what needs it: its blocks leave when it calls, and all others have arrived by then."""
    size, ranks, late = 1 << 18, 4, 5e-3
    gather = built("direct", "all_gather", ranks)
    found = simulate_program(gather, parse(f"full:{ranks}"), size, late={1: late}, every_message=every_message)
    assert found.seconds == pytest.approx(late + ALPHA + size / ranks / RATE)
    unequal = _core.build("two_shot", "all_reduce", ranks, shares=[1, 0, 1, 1])
    late = 2 / 3 * size / RATE
    usual, ours = (
        simulate_program(
            one, parse(f"star:{ranks}"), size, 1 << 10, late={1: late}, every_message=every_message
        ).seconds
        - late
        for one in (built("ring", "all_reduce", ranks), unequal)
    )
    assert ours == pytest.approx(size / RATE, rel=0.05)
    assert usual > 1.4 * ours
