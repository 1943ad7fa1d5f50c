"""Engine taccl: right schedules under sketches of all kinds, claims that nobody beats, and sentences for bad files."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.base.files.fields import FileError
from syntony.synth.checker.schedules.check import check_schedule
from syntony.synth.engines import greedy
from syntony.synth.engines.engine import Budget, EngineError
from syntony.synth.engines.taccl import search
from syntony.synth.engines.taccl import task as task_module
from syntony.synth.engines.taccl.logical import Logical, SketchError
from syntony.synth.engines.taccl.ordering import Ordering, listed, timed
from syntony.synth.engines.taccl.routing import route
from syntony.synth.engines.taccl.search import run
from syntony.synth.engines.taccl.sketch import Between, Sketch, default_sketch
from syntony.synth.engines.taccl.sketch_file import read_sketch, sketch_of
from syntony.synth.engines.taccl.sketch_json import sketch_of_json
from syntony.synth.engines.taccl.task import Task
from syntony.synth.engines.taccl.trees import grown, relaxed_time
from syntony.synth.model.collective import Collective
from syntony.synth.model.network import Network
from syntony.synth.model.schedule import Schedule
from syntony.synth.simulation.schedule_simulator import simulate
from syntony.synth.symmetry.reversal import summed
from syntony.synth.symmetry.throughput import gap_of
from syntony.topologies.graph.wiring import Wiring
from syntony.topologies.parse import parse
from syntony.topologies.topology import Topology
from tests.sampled import examples, one_in
from tests.synth.networks import networks, replay

SKETCHES = Path(sys.modules[run.__module__].__file__ or "").parent / "sketches"
KINDS = ("all_gather", "reduce_scatter", "all_to_all", "all_reduce", "broadcast", "reduce", "gather", "scatter")


def _run(topology: Topology, kind: str, argument: str = "", size: int = 1 << 20, seconds: float = 2.0) -> Schedule:
    schedule = run(topology, Collective.make(kind, topology.ranks), size, Budget(seconds), argument)
    verdict = check_schedule(schedule)
    assert verdict.valid, verdict.fault
    return schedule


def _file(folder: Path, text: str) -> str:
    path = folder / "sketch.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("name", "kind"), one_in(2, ["ring:4", "star:3", "mesh:2x3", "dgx1"], KINDS))
def test_every_collective_without_a_sketch(name: str, kind: str) -> None:
    replay(_run(parse(name), kind))


@examples(25)
@given(topology=networks(max_ranks=5), data=st.data())
def test_random_networks(topology: Topology, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    size = data.draw(st.sampled_from([1, 1000]))
    replay(_run(topology, kind, size=size, seconds=1.0))


@examples(25)
@given(topology=networks(max_ranks=4, switches=0), size=st.sampled_from([1, 8, 64]))
def test_nothing_is_faster_than_what_is_claimed_to_be_the_fastest(topology: Topology, size: int) -> None:
    """Without parallel links and switches nobody shares a link at once, so every engine's schedule is one."""
    assume(len({(link.src, link.dst) for link in topology.links}) == len(topology.links))
    collective = Collective.make("all_gather", topology.ranks)
    task = Task.of(Logical.of(Network(topology, collective), Sketch("free", symmetry=()), size), size)
    start = grown(task)
    unit = max(relaxed_time(task, start) / 100_000, 1e-15)
    found = route(task, start, unit, 5.0)
    rival = simulate(greedy.run(topology, collective, size, Budget()), size).seconds
    slack = 20 * unit * topology.ranks**2  # whole units, rounded up for every transfer
    assert found.least <= rival + slack
    assert relaxed_time(task, found.chosen) <= relaxed_time(task, start) + slack
    schedule = run(topology, collective, size, Budget(5.0))
    if schedule.proof.startswith("no schedule"):
        assert simulate(schedule, size).seconds <= rival + slack


def test_stages_keep_every_rule_of_the_plan() -> None:
    topology = parse("dgx2:2")
    sketch = read_sketch(str(SKETCHES / "dgx2x2-large.toml"), 32)
    task = Task.of(Logical.of(Network(topology, Collective.make("all_gather", 32)), sketch, 1 << 25), 1 << 25)
    chosen = grown(task)
    ordering = Ordering.of(task, chosen, 1e-9)
    assert ordering.after
    src, dst = task.logical.ends
    for chunk, edge in zip(*np.nonzero(chosen), strict=True):
        home, sender = int(task.home[chunk]), int(src[edge])
        if sender // 16 != dst[edge] // 16:
            assert sender // 16 == home // 16
            assert sender % 16 == home % 16 // 2 * 2 + 1
    begin = listed(ordering)
    _assert_possible(ordering, begin)
    small = Task.of(
        Logical.of(Network(parse("dgx1"), Collective.make("all_gather", 8)), Sketch("free"), 1 << 20), 1 << 20
    )
    ordering = Ordering.of(small, grown(small), 1e-9)
    better = timed(ordering, listed(ordering), 0, 3.0)
    _assert_possible(ordering, better)
    assert ordering.makespan(better) <= ordering.makespan(listed(ordering))


def _assert_possible(ordering: Ordering, begin: list[int]) -> None:
    held: dict[int, list[tuple[int, int]]] = {}
    for number, start in enumerate(begin):
        parent = ordering.parent[number]
        assert start >= (0 if parent < 0 else begin[parent] + ordering.latency[parent])
        for link, length in ordering.busy[number].items():
            held.setdefault(link, []).append((start, start + length))
    for spans in held.values():
        spans.sort()
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(begin[first] <= begin[then] for first, then in ordering.after)


def test_the_symmetry_of_a_sketch_is_kept() -> None:
    sketch = read_sketch(str(SKETCHES / "dgx2x2-small.toml"), 32)
    logical = Logical.of(Network(parse("dgx2:2"), Collective.make("all_gather", 32)), sketch, 1 << 20)
    assert logical.group.order == 16
    task = Task.of(logical, 1024)
    assert len(task.representatives) == 2
    chosen = route(task, grown(task), 1e-9, 0.0).chosen
    for chunks, edges in zip(task.chunk_to, task.edge_to, strict=True):
        assert np.array_equal(chosen[chunks][:, edges], chosen)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all"])
def test_the_example_for_two_ndv2(kind: str) -> None:
    topology = parse(f"file:{SKETCHES / 'ndv2x2-topology.json'}")
    schedule = _run(topology, kind, str(SKETCHES / "ndv2x2.toml"), 1 << 24, 4.0)
    assert gap_of(schedule) == 0  # the one NIC of a box carries each block once
    across = {(row.src, row.dst) for row in schedule.transfers.rows() if row.src // 8 != row.dst // 8}
    assert across == ({(1, 8), (9, 0)} if kind == "reduce_scatter" else {(0, 9), (8, 1)})


@pytest.mark.parametrize("name", ["dgx2x2-small.toml", pytest.param("dgx2x2-large.toml", marks=pytest.mark.soak)])
def test_the_examples_for_two_dgx2(name: str) -> None:
    schedule = _run(parse("dgx2:2"), "all_gather", str(SKETCHES / name), 1 << 20, 3.0)
    across = {(row.src, row.dst) for row in schedule.transfers.rows() if row.src // 16 != row.dst // 16}
    if name == "dgx2x2-small.toml":
        assert across <= {(rank, (rank + 16) % 32) for rank in range(32)}
    else:
        pairs = {(sender, sender + 15) for sender in range(1, 16, 2)}
        assert across == pairs | {(sender + 16, sender - 1) for sender, _ in pairs}
        for row in schedule.transfers.rows():
            home = min(schedule.collective.pre(int(schedule.values.chunk[row.value])))
            if (row.src // 16, row.dst // 16) == (home // 16, 1 - home // 16):
                assert row.src % 16 - home % 16 in (0, 1)


def test_links_that_a_sketch_leaves_out_are_not_used(tmp_path: Path) -> None:
    path = _file(tmp_path, "chunks = 3\n[links]\nwithout = [[0, 1], [1, 0]]\n")
    schedule = _run(parse("full:4"), "all_gather", path)
    assert len(schedule.collective.chunks) == 12
    assert not {(row.src, row.dst) for row in schedule.transfers.rows()} & {(0, 1), (1, 0)}
    path = _file(tmp_path, "symmetry = []\n[links]\nonly = [[0, 1], [1, 2], [2, 3], [3, 0]]\n")
    assert {(row.dst - row.src) % 4 for row in _run(parse("full:4"), "all_gather", path).transfers.rows()} == {1}


def test_connections_are_heard(tmp_path: Path) -> None:
    used = {}
    for word in ("few", "many"):
        path = _file(tmp_path, f'connections = "{word}"\nsymmetry = []\n')
        topology = parse("full:4,bandwidth=1e12,alpha=0")
        schedule = _run(topology, "all_gather", path, 1000, 5.0)
        used[word] = len({(row.src, row.dst) for row in schedule.transfers.rows()})
    assert used["few"] <= used["many"] == 12


def test_the_size_of_a_sketch_is_the_one_planned_for(tmp_path: Path) -> None:
    assert read_sketch(_file(tmp_path, 'size = "2K"'), 4).size == 2048
    schedule = _run(parse("ring:4"), "all_gather", _file(tmp_path, 'size = "2K"'))
    assert "at 2048 bytes" in schedule.proof


def test_default_sketches() -> None:
    assert default_sketch(parse("dgx2:2"), tuple(range(32))).between == Between(16)
    assert default_sketch(parse("dgx1"), tuple(range(8))).between is None
    assert default_sketch(parse("dgx2:2"), (0, 16, 17)).between is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("chunks = 0", "chunks is 0; it must be from 1 to 1024"),
        ("chunks = true", "chunks is true; it must be a whole number"),
        ("chunk = 2", 'the file has the unknown key "chunk"'),
        ("size = '1 XB'", 'size is "1 XB"; it must be bytes, such as 65536 or "64K"'),
        ("connections = 'uc-min'", 'connections is "uc-min"; it must be one of any, few, many'),
        ("detour = -1", "detour is -1; it must be from 0 to 100"),
        ("symmetry = [[1]]", r"symmetry\[0\] is \[1\]; it must be an offset and a group such as \[8, 16\]"),
        ("symmetry = 'all'", 'symmetry is "all"; it must be "declared", or rotations'),
        ("symmetry = [[1, 3]]", r"symmetry has \[1, 3\]; the group must divide the 4 ranks"),
        ("symmetry = [[1, 4], [1, 2]]", "symmetry leaves some rank in its place while it moves others"),
        ("[links]\nonly = [[0, 1]]", r"symmetry|cannot reach rank"),
        ("[links]\nwithout = [[0, 9]]", r"links.without names 0 -> 9; ranks are 0..3"),
        ("[links]\nsome = [[0, 1]]", 'links has the unknown key "some"'),
        ("symmetry = [[1, 4]]\n[links]\nwithout = [[0, 1]]", r"symmetry \[1, 4\] moves 3 -> 0 to 0 -> 1"),
        ("[between]\nrelays = 'same'", 'between has no "box"'),
        ("[between]\nbox = 3", "between.box is 3, which does not divide the 4 ranks"),
        ("[between]\nbox = 2\nrelays = { a = [0] }", "between.relays is .*; it must be a table from positions"),
        ("[between]\nbox = 2\nrelays = { 2 = [0] }", "between.relays names position 2; a box has positions 0..1"),
        ("[between]\nbox = 2\ncarries = { 0 = [0] }", "what starts at rank 1 cannot reach rank 2 over the links"),
        ("[between]\nbox = 2\nown_first = 1", "between.own_first is 1; it must be true or false"),
        ("chunks = ", "not TOML: Invalid value"),
    ],
)
def test_what_is_wrong_with_a_sketch_is_said(text: str, sentence: str, tmp_path: Path) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(UserError, match=sentence) as caught:
        run(parse("full:4"), Collective.make("all_gather", 4), 1024, Budget(1.0), path)
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"absent\.toml: cannot be read: No such file"):
        read_sketch(str(tmp_path / "absent.toml"), 4)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(FileError, match="byte 0 is not UTF-8"):
        read_sketch(str(tmp_path / "binary"), 4)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="minimizes time and takes no --steps or --rounds"):
        run(parse("ring:4"), Collective.make("all_gather", 4), 1, Budget(steps=2))
    with pytest.raises(SketchError, match="symmetry moves the root"):
        Logical.of(Network(parse("ring:4"), Collective.make("broadcast", 4)), Sketch("s", symmetry=((1, 4),)), 1)
    monkeypatch.setattr(task_module, "MOST_PAIRS", 40)
    with pytest.raises(EngineError, match="would weigh 4 chunks on 12 pairs of ranks, more than 40 choices"):
        run(parse("full:4"), Collective.make("all_gather", 4), 1, Budget())


def test_a_budget_that_is_over_still_yields_a_schedule() -> None:
    replay(_run(parse("dgx1"), "all_to_all", seconds=1e-6))


# TACCL's own files ----------------------------------------------------------------------------------------------------

TWO_DGX2 = {
    "nnodes": 2,
    "intranode_sketch": {
        "strategy": "switch",
        "switches": [list(range(16))],
        "switch_hyperedge_strategy": ["uc-min"],
    },
    "internode_sketch": {
        "strategy": "relay",
        "internode_conn": {str(sender): [sender - 1] for sender in range(1, 16, 2)},
        "gpus_to_sender_rev_map": {str(sender): [sender - 1, sender] for sender in range(1, 16, 2)},
        "enforce_ordering": True,
    },
    "symmetry_offsets": [[2, 16], [16, 32]],
    "hyperparameters": {"input_chunkup": 2},
}


def test_taccls_sketch_says_the_same_as_ours(tmp_path: Path) -> None:
    path = tmp_path / "sketch.json"
    path.write_text(json.dumps(TWO_DGX2), encoding="utf-8")
    ours = read_sketch(str(SKETCHES / "dgx2x2-large.toml"), 32)
    assert replace(read_sketch(str(path), 32), name=ours.name) == ours
    for word, relays in (("direct-map", "same"), ("fully-connected", "all")):
        more = TWO_DGX2 | {"internode_sketch": {"strategy": "relay", "internode_conn": word}}
        assert sketch_of_json(more, "s", 32).between == Between(16, relays)  # type: ignore[arg-type]
    alone = {**TWO_DGX2, "nnodes": 1, "intranode_sketch": {"strategy": "none"}, "symmetry_offsets": []}
    assert sketch_of_json(alone, "s", 8) == Sketch("s", 2, symmetry=())


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("nnodes",), 3, "nnodes is 3; it must divide the 32 ranks"),
        (("intranode_sketch", "strategy"), "minmax", '"minmax" balances links as a goal; that is not supported'),
        (("intranode_sketch", "strategy"), "ring", 'it must be "none" or "switch"'),
        (("intranode_sketch", "switches"), [[0, 16]], r"switches\[0\] is \[0, 16\]; it must be a list of GPUs 0..15"),
        (("intranode_sketch", "switch_hyperedge_strategy"), ["uc"], "it must be uc-min or uc-max"),
        (("intranode_sketch", "switch_hyperedge_strategy"), [], "it must have one for each of the 1 switches"),
        (("internode_sketch", "strategy"), "switch", 'it must be "relay"'),
        (("internode_sketch", "internode_conn"), "star", "or direct-map or fully-connected"),
        (("internode_sketch", "enforce_ordering"), "yes", "it must be true or false"),
        (("symmetry_offsets",), [[0, 4]], r"symmetry_offsets\[0\] is \[0, 4\]; it must be an offset and a group"),
        (("hyperparameters", "input_chunkup"), 0, "input_chunkup is 0; it must be from 1 to 1024"),
        (("hyperparameters", "heuristic"), 3, 'hyperparameters has the unknown key "heuristic"'),
    ],
)
def test_what_taccls_sketch_cannot_say_is_refused(path: tuple[str, ...], value: object, sentence: str) -> None:
    data = json.loads(json.dumps(TWO_DGX2))
    at = data
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(FileError, match=sentence):
        sketch_of_json(data, "their.json", 32)


def test_mutants_of_sketches_are_read_or_refused() -> None:
    """Whatever a file says, it is a sketch or a sentence."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    ours = {"chunks": 2, "size": "1K", "symmetry": [[1, 4]], "links": {"only": [[0, 1]]}, "between": {"box": 2}}
    junk = [None, True, -1, 0, 1, 2**40, 1.5, "", "same", [], [[]], [1], {}, {"0": [1]}, {"x": 1}]
    for reader, original in ((sketch_of, ours), (lambda data, where: sketch_of_json(data, where, 32), TWO_DGX2)):
        for _ in range(1500):
            data = json.loads(json.dumps(original))
            at = data
            while True:
                key = rng.choice(list(at))
                if isinstance(at[key], dict) and at[key] and rng.random() < 0.7:
                    at = at[key]
                    continue
                break
            if rng.random() < 0.2:
                del at[key]
            else:
                at[key] = rng.choice(junk)
            said = ""
            try:
                assert isinstance(reader(data, "mutant"), Sketch)
            except UserError as error:
                said = str(error)
            assert not said or said.startswith("mutant: ")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "s.json"
    command = ["synth", "ring:4", "all_gather", "--explain", "--timeout", "60", "--engine"]
    assert main([*command, "taccl", "-o", str(output)]) == 0
    assert "no schedule that the default for ring:4 allows takes less time" in capsys.readouterr().out
    assert main(["verify", str(output)]) == 0
    path = _file(tmp_path, "chunks = 0")
    assert main([*command, f"taccl:{path}"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"{path}: chunks is 0" in said


def test_of_two_wires_small_chunks_take_the_quick_one_and_large_ones_the_wide_one() -> None:
    wiring = Wiring("four in a ring, each wire twice")
    for rank in range(4):
        wiring.rank((rank, 0))
    for rank in range(4):
        wiring.cable(rank, (rank + 1) % 4, Fraction(10**9), 1e-6)
        wiring.cable(rank, (rank + 1) % 4, Fraction(10**10), 1e-5)
    topology = wiring.topology()
    for size, rate in ((1 << 10, 10**9), (1 << 20, 10**10)):
        schedule = _run(topology, "all_gather", size=size)
        assert {int(topology.links[link].bandwidth) for link in schedule.transfers.link} == {rate}


@pytest.mark.parametrize("kind", ["all_gather", "reduce", "all_reduce"])
def test_what_is_better_is_told_while_the_search_goes_on(kind: str) -> None:
    told: list[Schedule] = []
    topology, size = parse("dgx1"), 1 << 20
    found = run(topology, Collective.make(kind, 8), size, Budget(4.0, better=told.append))
    times = [simulate(one, size).seconds for one in (*told, found)]
    assert told
    assert times == sorted(times, reverse=True)
    assert all(check_schedule(one) and one.bounds == found.bounds and one.engine == "taccl" for one in told)


@pytest.mark.parametrize("listens", [False, True])
def test_sums_are_made_for_the_end_and_for_who_listens(listens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Schedule] = []

    def noted(schedule: Schedule, topology: Topology) -> Schedule:
        made.append(schedule)
        return summed(schedule, topology)

    monkeypatch.setattr(search, "summed", noted)
    told: list[Schedule] = []
    run(parse("dgx1"), Collective.make("reduce", 8), 1 << 20, Budget(4.0, better=told.append if listens else None))
    assert len(made) == len(told) + 1
    assert bool(told) == listens
