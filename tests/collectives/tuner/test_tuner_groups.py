"""Groups of real processes: what they agree on, who is named when they do not, and what then runs and why."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from syntony import Communicator, _core, topologies
from syntony._core import CommunicationError, automatic_choice
from syntony.base.command import UserError
from syntony.collectives.bootstrap.launch import Exchange, RankError, run_ranks
from syntony.collectives.tuner import settings, table
from syntony.collectives.tuner.costs import Key
from syntony.collectives.tuner.measure import Measured, measure_until_sure
from syntony.collectives.tuner.table import Place, Table
from syntony.collectives.verbs import Verbs
from syntony.synth.engines.engine import Budget
from syntony.synth.engines.portfolio import Entry, Portfolio
from syntony.synth.engines.registry import engine_named
from syntony.synth.formats import portfolio_file, schedule_file
from syntony.synth.model.collective import Collective
from syntony.topologies.probed.measurements import Measurements
from tests.collectives.running import run_command, run_python

Job = Callable[[Communicator], object]


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for variable in ("SYNTONY_ALGO", "SYNTONY_CONFIG", "SYNTONY_TUNE", "SYNTONY_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return


def on_ranks(size: int, job: Job, environment: Callable[[int], dict[str, str]] = lambda rank: {}) -> list[object]:
    """What `job` returns on each rank, a process with its own environment; or the first sentence that was raised."""
    answers: list[object] = []

    def work(exchange: Exchange) -> int:
        os.environ.update(environment(exchange.rank))
        try:
            with Communicator.create(exchange, timeout=60.0) as group:
                answer = job(group)
        except (CommunicationError, UserError) as error:
            answer = f"{type(error).__name__}: {error}"
        told = exchange.all_gather("answers", json.dumps(answer).encode())
        if exchange.rank == 0:
            (folder / "answers").write_bytes(b"[" + b",".join(told) + b"]")
        return 0

    folder = Path(os.environ["XDG_CACHE_HOME"])
    folder.mkdir(parents=True, exist_ok=True)
    run_ranks(size, work, 60.0)
    answers = json.loads((folder / "answers").read_bytes())
    (folder / "answers").unlink()
    return answers


def choices(collective: str, *sizes: int, root: int = 0) -> Job:
    return lambda group: [group._core.choice(collective, root, size)[0] for size in sizes]


def own(collective: str, size: int, ranks: int = 2) -> str:
    return automatic_choice(collective, size, [list(range(ranks))])[0]


def keep_table(ranks: int = 2) -> Path:
    """dbt for small sizes, ring for large ones."""
    costs = {
        Key("all_reduce", "dbt"): {8: 1e-6, 1 << 10: 1e-6, 1 << 20: 1.0},
        Key("all_reduce", "ring"): {8: 1e-3, 1 << 10: 1e-3, 1 << 20: 1e-3},
    }
    return Table(Place.here([list(range(ranks))]), costs).write()


def test_rules_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNTONY_ALGO", "all_reduce:dbt<=1K,auto<=1M,ring;broadcast:ring<=64")
    job = choices("all_reduce", 8, 1024, 1025, 1 << 20, 1 << 30)
    builtin = own("all_reduce", 1025), own("all_reduce", 1 << 20)
    assert on_ranks(2, job) == [["dbt", "dbt", *builtin, "ring"]] * 2
    assert on_ranks(2, choices("broadcast", 64, 65)) == [["ring", own("broadcast", 65)]] * 2


def test_exclusions_take_the_next_best_and_leave_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [1 << power for power in range(0, 32, 3)]
    builtin = {own("all_reduce", size) for size in sizes}
    monkeypatch.setenv("SYNTONY_ALGO", "^" + ",".join(sorted(builtin)))
    (found, again) = on_ranks(2, choices("all_reduce", *sizes))
    assert found == again
    assert not builtin & set(found)  # type: ignore[call-overload]
    monkeypatch.setenv("SYNTONY_ALGO", "all_reduce:^dbt")
    assert on_ranks(2, choices("all_reduce", *sizes))[0] == [own("all_reduce", size) for size in sizes]


def test_what_is_chosen_runs_and_says_why() -> None:
    script = (
        "import numpy as np\n"
        "from syntony import Communicator\n"
        "from syntony.collectives.bootstrap import launch\n"
        "def work(exchange):\n"
        "    with Communicator.create(exchange) as group:\n"
        "        array = np.ones(1000, np.float32); group.all_reduce(array); assert (array == 2).all()\n"
        "    return 0\n"
        "launch.run_ranks(2, work, 60.0)\n"
    )
    ran = run_python("-c", script, SYNTONY_DEBUG="INFO", SYNTONY_ALGO="all_reduce:dbt")
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("all_reduce of 4000 bytes: dbt (SYNTONY_ALGO)") == 2
    path = keep_table()
    ran = run_python("-c", script, SYNTONY_DEBUG="INFO")
    assert ran.stderr.count(f"all_reduce of 4000 bytes: dbt (tuned table {path})") == 2, ran.stderr


def test_a_kept_table_is_used_but_by_those_who_say_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_table()
    job = choices("all_reduce", 8, 1 << 20)
    assert on_ranks(2, job) == [["dbt", "ring"]] * 2
    assert on_ranks(3, job)[0] == [own("all_reduce", 8, 3), own("all_reduce", 1 << 20, 3)]  # another kind of group
    monkeypatch.setenv("SYNTONY_ALGO", "all_reduce:two_shot<=64")
    assert on_ranks(2, job)[0] == ["two_shot", "ring"]
    monkeypatch.setenv("SYNTONY_ALGO", "^dbt")
    assert on_ranks(2, job)[0] == ["ring", "ring"]
    monkeypatch.setenv("SYNTONY_TUNE", "off")
    assert on_ranks(2, job)[0] == [own("all_reduce", 8), own("all_reduce", 1 << 20)]


def test_the_table_of_rank_0_is_everybodys(tmp_path: Path) -> None:
    path = keep_table()
    elsewhere = str(tmp_path / "elsewhere")
    job = choices("all_reduce", 8, 1 << 20)
    assert on_ranks(2, job, lambda rank: {"XDG_CACHE_HOME": elsewhere} if rank else {}) == [["dbt", "ring"]] * 2
    assert on_ranks(2, job, lambda rank: {} if rank else {"XDG_CACHE_HOME": elsewhere})[1] == [
        own("all_reduce", 8),
        own("all_reduce", 1 << 20),
    ]
    assert path.exists()


def test_a_corrupt_table_is_told_and_passed_by(capfd: pytest.CaptureFixture[str]) -> None:
    path = keep_table()
    path.write_text(path.read_text()[:-20])
    assert on_ranks(2, choices("all_reduce", 8)) == [[own("all_reduce", 8)]] * 2
    told = capfd.readouterr().err
    assert told.count(f"syntony: {path}: not JSON at line") == 1
    assert "it is not used (`syntony tune` makes it anew)" in told


def test_unequal_settings_are_named_on_every_rank() -> None:
    texts = ["all_reduce:ring", "all_reduce:ring", "all_reduce:dbt"]
    sentence = (
        "CommunicationError: rank 2 has SYNTONY_ALGO=all_reduce:dbt and rank 0 all_reduce:ring: they must be equal"
    )
    assert on_ranks(3, choices("all_reduce", 8), lambda rank: {"SYNTONY_ALGO": texts[rank]}) == [sentence] * 3
    answers = on_ranks(2, choices("all_reduce", 8), lambda rank: {"SYNTONY_TUNE": "off"} if rank else {})
    assert answers == ["CommunicationError: rank 1 has SYNTONY_TUNE=off and rank 0 unset: they must be equal"] * 2


def test_a_mistake_of_one_rank_is_told_by_all() -> None:
    texts = ["all_reduce:ring", "all_reduce:rign"]
    answers = on_ranks(2, choices("all_reduce", 8), lambda rank: {"SYNTONY_ALGO": texts[rank]})
    for answer in answers:
        sentence = 'CommunicationError: rank 1: SYNTONY_ALGO, character 12: "rign" is not an algorithm'
        assert str(answer).startswith(sentence)


def test_groups_made_out_of_a_group_follow_the_same_rules() -> None:
    def job(group: Communicator) -> object:
        half = group.split(group.rank % 2)
        assert half is not None
        with half:
            array = np.ones(3)
            half.all_reduce(array)
            assert (array == 2).all()
            return half._core.choice("all_reduce", 0, 24)

    assert on_ranks(4, job, lambda rank: {"SYNTONY_ALGO": "dbt"}) == [["dbt", "SYNTONY_ALGO"]] * 4


# ---- the configuration file ------------------------------------------------------------------------------------------


def write_schedules(folder: Path) -> None:
    network = topologies.parse("ring:3")
    collective = Collective.make("all_gather", 3)
    made = [engine_named(name).run(network, collective, 1 << 20, Budget()) for name in ("greedy", "forest")]
    portfolio_file.write(Portfolio((Entry(made[0], 1000), Entry(made[1], None))), folder / "both.json")
    schedule_file.write(made[0], folder / "one.json")
    root_1 = Collective.make("broadcast", 3, root=1)
    schedule_file.write(engine_named("greedy").run(network, root_1, 1 << 20, Budget()), folder / "root1.json")


def test_a_file_names_schedules_and_portfolios(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_schedules(tmp_path)
    config = tmp_path / "c.toml"
    config.write_text(
        'algo = """\n all_gather: one<=64, both<=64K, ring;\n broadcast: root1\n"""\n'
        '[schedules]\none = "one.json"\nboth = "both.json"\nroot1 = "root1.json"\n'
    )
    monkeypatch.setenv("SYNTONY_CONFIG", str(config))

    def job(group: Communicator) -> object:
        whole = np.zeros(300, np.int32)
        group.all_gather(np.full(100, group.rank, np.int32), whole)
        assert whole.tolist() == [rank for rank in range(3) for _ in range(100)]
        return [
            choices("all_gather", 64, 1000, 1001, 65536, 65537)(group),
            [choices("broadcast", 8, root=root)(group) for root in (0, 1)],
            group._core.choice("all_gather", 0, 64)[1],
        ]

    gathers = ["one", "both 0", "both 1", "both 1", "ring"]
    broadcasts = [[own("broadcast", 8, 3)], ["root1"]]
    assert on_ranks(3, job) == [[gathers, broadcasts, f"SYNTONY_CONFIG={config}: one"]] * 3
    # With another number of ranks the schedules have nothing to say.
    pair = [own("all_gather", 64), own("all_gather", 1000), "ring"]
    assert on_ranks(2, choices("all_gather", 64, 1000, 65537)) == [pair] * 2
    monkeypatch.setenv("SYNTONY_ALGO", "all_gather:dbt")  # goes before the file, for its collective
    assert on_ranks(3, choices("all_gather", 64))[0] == ["dbt"]
    assert on_ranks(3, choices("broadcast", 64, root=1))[0] == ["root1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("algo = 3", "algo must be a string"),
        ('algo = "all_reduce:rign"', 'c.toml: algo, character 12: "rign"'),
        ('tune = "often"', "tune is one of cache, probe, off"),
        ("speed = 1", 'the key "speed" means nothing'),
        ('schedules.ring = "f.json"', '"ring" must be letters'),
        ('schedules.mine = "f.json"', "f.json: cannot be read"),
        ("schedules.mine = 1", "must be the name of a file"),
        ("schedules = 1", "must be a table"),
        ("algo = ", "not TOML"),
    ],
)
def test_a_wrong_file_gives_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(UserError) as caught:
        settings.read({"SYNTONY_CONFIG": str(tmp_path / "c.toml")})
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)


# ---- measuring -------------------------------------------------------------------------------------------------------


def test_tune_measures_checks_and_keeps(tmp_path: Path) -> None:
    network = topologies.parse("full:2")
    schedule = engine_named("greedy").run(network, Collective.make("all_reduce", 2), 1 << 20, Budget())
    schedule_file.write(schedule, tmp_path / "mine.json")
    command = ["tune", "--ranks", "2", "--sizes", "8,1K,64K"]
    toml = tmp_path / "o.toml"
    ran = run_command(
        *command, "--collectives", "all_reduce,scatter", "--json", "--schedule", tmp_path / "mine.json", "-o", toml
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    measured = {(entry["collective"], entry["algorithm"]) for entry in found["costs"]}
    expected = {(c, a) for c in ("all_reduce", "scatter") for a in settings.self_sufficient(c)}
    assert measured == expected | {("all_reduce", "mine")}
    assert all([point[0] for point in entry["points"]] == [8, 1024, 65536] for entry in found["costs"])
    assert {row["collective"] for row in found["ranges"]} == {"all_reduce", "scatter"}
    kept = table.load(Place.here([[0, 1]]))
    assert kept is not None
    assert {(key.collective, key.algorithm) for key in kept.costs} == measured - {("all_reduce", "mine")}
    settings.read({"SYNTONY_CONFIG": str(toml)})

    ran = run_command(*command, "--collectives", "gather")
    assert ran.returncode == 0, ran.stderr
    assert "mean error, inner sizes left out of the fit" in ran.stdout
    kept = table.load(Place.here([[0, 1]]))
    assert kept is not None
    assert set(kept.collectives) == {"all_reduce", "scatter", "gather"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--collectives", "all_redcue"], "no collective 'all_redcue' (did you mean all_reduce?)"),
        (["--sizes", "8,x"], "--sizes: 'x' is not a size"),
        (["-o", "f.json"], "must end in .toml"),
        (["--ranks", "1"], "one rank only"),
    ],
)
def test_tune_refuses_with_a_sentence(arguments: list[str], said: str) -> None:
    ran = run_command("tune", *arguments)
    assert ran.returncode == 2
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr


def test_odd_sizes_are_whole_elements_and_measured_once() -> None:
    """For 3 ranks, 4-byte elements in blocks: all_gather of 5, 6 and 13 bytes is 12."""
    from syntony.collectives.tuner.measure import Effort, measure

    def job(group: Communicator) -> object:
        told: list[tuple[str, int]] = []
        candidates = {"all_gather": ["ring"], "all_reduce": ["ring"]}
        effort = Effort(budget=0.0, fewest=1, most=1)
        found = measure(group, candidates, [5, 6, 13, 4099], effort, lambda *what: told.append(what))
        assert 0 <= found.waited <= 1
        sizes = {key.collective: sorted(points) for key, points in found.costs.items()}
        assert told == [(collective, size) for collective in candidates for size in sizes[collective]]
        return sizes

    assert on_ranks(3, job) == [{"all_gather": [12, 4092], "all_reduce": [4, 12, 4096]}] * 3


def test_on_slow_wires_calls_are_few_and_large_sizes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from syntony.collectives.tuner import measure

    sizes, candidates = [8, 64, 512], {"all_reduce": ["ring", "direct"]}
    called: list[int] = []

    def stamps(group: object, trial: object, name: str, calls: int) -> np.ndarray:
        called.append(calls)
        return np.full(calls, 1e-9)  # the call that was checked took longer

    monkeypatch.setattr(measure, "_stamps", stamps)

    def job(group: Communicator) -> object:
        found = measure.measure(group, candidates, sizes, measure.Effort(single=0.0, patience=1e-9))
        return [[list(points), *points.values()] for points in found.costs.values()], called

    assert on_ranks(2, job) == [[[[[8], 1e-9]] * 2, [1, 1]]] * 2  # at 64 bytes both would take 1.6e-8 s

    def quick(group: Communicator) -> object:
        found = measure.measure(group, candidates, sizes, measure.Effort(single=0.0))
        return [list(points) for points in found.costs.values()]

    assert on_ranks(2, quick) == [[sizes] * 2] * 2


def test_tune_with_two_sizes_says_that_they_are_too_few() -> None:
    ran = run_command("tune", "--collectives", "gather", "--sizes", "8,1M")
    assert ran.returncode == 0, ran.stderr
    assert "too few sizes for gather: it takes 3" in ran.stdout
    assert "mean error" not in ran.stdout


def test_a_wrong_result_is_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from syntony.collectives.tuner import measure

    def work(exchange: Exchange) -> int:
        with Communicator.create(exchange, timeout=60.0) as group:
            if exchange.rank == 1:
                monkeypatch.setattr(measure, "_total", lambda ranks, elements: np.zeros(elements, np.float32))
            measure.measure(group, {"all_reduce": ["ring"]}, [64])
        return 0

    with pytest.raises(RankError, match="ring all_reduce of 64 bytes gave a wrong result on 1 of 2 ranks"):
        run_ranks(2, work, 60.0)


def test_a_probe_is_made_once_and_only_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from syntony.collectives.tuner import probe

    monkeypatch.setattr(probe, "_SIZES", (8, 1024))
    monkeypatch.setattr(probe.settings, "algorithms", lambda: {"all_reduce": ("direct", "ring")})
    path = Place.here([[0, 1]]).path()
    on_ranks(2, choices("all_reduce", 8))
    assert not path.exists()
    monkeypatch.setenv("SYNTONY_TUNE", "probe")
    why = on_ranks(2, lambda group: group._core.choice("all_reduce", 0, 8))
    assert why[0] == why[1]
    assert why[0][1] == "tuned table what this group has measured"  # type: ignore[index]
    written = path.read_bytes()
    why = on_ranks(2, lambda group: group._core.choice("all_reduce", 0, 8)[1])
    assert why == [f"tuned table {path}"] * 2
    assert path.read_bytes() == written


# ---- levels ---------------------------------------------------------------------------------------------------------

RACKS = [[0, 1, 2, 3], [4, 5, 6]]


def hosts(rank: int) -> dict[str, str]:
    return {"SYNTONY_HOST": f"host{rank}"}


def test_hosts_that_are_one_machine_share_its_processors() -> None:
    cpus = sorted(os.sched_getaffinity(0))

    def crowded(ranks: int, cpu: Callable[[int], set[int]]) -> bool:
        def pinned(rank: int) -> dict[str, str]:
            os.sched_setaffinity(0, cpu(rank))
            return hosts(rank)

        job: Job = lambda group: [group.crowded, group._core.choice("all_reduce", 0, 8)[0]]  # noqa: E731
        (found, *others) = on_ranks(ranks, job, pinned)
        assert others == [found] * (ranks - 1)
        assert isinstance(found, list)
        boxes = [[rank] for rank in range(ranks)]
        assert found[1] == automatic_choice("all_reduce", 8, boxes, found[0])[0]
        return bool(found[0])

    assert crowded(4, lambda rank: set(cpus)) == (len(cpus) < 4)
    assert crowded(4, lambda rank: {cpus[rank % 2 % len(cpus)]})
    assert crowded(2, lambda rank: {cpus[rank % len(cpus)]}) == (len(cpus) < 2)


def test_what_a_hop_is_worth_depends_on_who_has_processors() -> None:
    four, eight = ([[rank] for rank in range(ranks)] for ranks in (4, 8))
    for collective, few in (("all_reduce", "recursive_doubling"), ("all_gather", "bruck"), ("reduce_scatter", "pat")):
        assert [automatic_choice(collective, 8, four, crowded)[0] for crowded in (False, True)] == ["direct", few]
        assert [automatic_choice(collective, 8, eight, crowded)[0] for crowded in (False, True)] == [few, few]


def test_pairs_that_share_processors_exchange_around_a_ring() -> None:
    neighbours, apart = [[0, 1], [2, 3]], [[0, 2], [1, 3]]
    sizes = (32 << 10, 64 << 10, 512 << 10, 1 << 20)

    def chosen(boxes: list[list[int]], crowded: bool) -> list[str]:
        return [automatic_choice("all_to_all", size, boxes, crowded)[0] for size in sizes]

    assert chosen(neighbours, True) == ["hierarchical", "ring", "ring", "hierarchical"]
    assert chosen([[1, 2], [0, 3]], True) == chosen(neighbours, True)
    assert chosen(neighbours, False) == chosen(apart, True) == ["hierarchical"] * len(sizes)


def racked(group: Verbs, names: tuple[str, ...], effort: object, between: float = 1e8) -> Measurements:
    """What a probe measures where the wire between two racks is slower, if it is."""
    rack = np.array([0, 0, 0, 0, 1, 1, 1])[: group.size]
    bandwidth = np.where(rack[:, None] == rack, 1e9, between)
    np.fill_diagonal(bandwidth, np.nan)
    return Measurements(names, np.full_like(bandwidth, 1e-5), bandwidth)


def test_probed_racks_become_the_levels_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    from syntony.collectives.tuner import levels, probe

    monkeypatch.setattr(probe, "_SIZES", (8, 1024))
    monkeypatch.setattr(probe.settings, "algorithms", lambda: {"broadcast": ("direct", "dbt")})
    monkeypatch.setattr(levels.probe, "pairs_of", racked)
    hierarchical = _core.build("hierarchical", "all_reduce", 7, boxes=RACKS).hash

    def job(group: Communicator) -> object:
        data = np.arange(1000, dtype=np.float32) + group.rank
        group.all_reduce(data)
        assert (data == 7 * np.arange(1000) + 21).all()
        return *group._core.choice("all_reduce", 0, 1 << 24), group._core.program_hash("all_reduce", 0, 1 << 24)

    expected = [["hierarchical", "some hosts are near each other", hierarchical]] * 7
    assert on_ranks(7, job, hosts) != expected  # nobody has probed
    monkeypatch.setenv("SYNTONY_TUNE", "probe")
    assert on_ranks(7, job, hosts) == expected
    place = Place.here([[rank] for rank in range(7)])
    kept = table.load(place)
    assert kept is not None
    assert kept.levels == tuple(map(tuple, RACKS))
    monkeypatch.delenv("SYNTONY_TUNE")
    monkeypatch.delattr(levels.probe, "pairs_of")  # the levels are kept with the table, and rank 0 tells them
    assert on_ranks(7, job, hosts) == expected
    document = json.loads(place.path().read_text())
    place.path().write_text(json.dumps(document | {"levels": [[0, 1, 2, 3], [3, 5, 6]]}))
    with pytest.raises(UserError, match="it must be lists that hold each rank once"):
        table.load(place)


def test_a_group_is_tuned_anew_when_wires_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two racks are found; then the wire between them is as fast as the others."""
    from syntony.collectives.tuner import levels, probe

    monkeypatch.setattr(probe, "_SIZES", (8, 1024))
    monkeypatch.setattr(probe.settings, "algorithms", lambda: {"broadcast": ("direct", "dbt")})

    def job(group: Communicator) -> object:
        found = []
        for between in (1e8, 1e9):
            monkeypatch.setattr(levels.probe, "pairs_of", partial(racked, between=between))
            group.tune()
            data = np.arange(1000, dtype=np.float32) + group.rank
            group.all_reduce(data)
            assert (data == 6 * np.arange(1000) + 15).all()
            found.append(group._core.choice("all_reduce", 0, 1 << 24)[0])
        return found

    assert on_ranks(6, job, hosts) == [["hierarchical", "two_shot"]] * 6


def test_no_levels_where_hosts_are_alike_or_have_several_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    from syntony.collectives.tuner import levels

    monkeypatch.setattr(levels.probe, "pairs_of", racked)
    assert on_ranks(4, levels.find, hosts) == [[]] * 4  # all of one rack
    assert on_ranks(6, levels.find, hosts) == [[[0, 1, 2, 3], [4, 5]]] * 6
    assert on_ranks(6, levels.find, lambda rank: hosts(rank // 2)) == [[]] * 6
    assert on_ranks(3, levels.find) == [[]] * 3


def test_levels_must_hold_each_rank_once() -> None:
    def job(group: Communicator) -> object:
        found = []
        for wrong in ([[0, 1]], [[0, 1], [1, 2]], [[0, 1], [2, 3]]):
            with pytest.raises(ValueError, match="levels must hold each of the 3 ranks once"):
                group._core.set_levels(wrong)
            found.append(group._core.choice("all_reduce", 0, 8)[0])
        return found

    assert on_ranks(3, job) == [["shared"] * 3] * 3


def test_rates_give_a_group_its_shares() -> None:
    """A group changes its mind between two calls: the third of four hosts is slow, then it is always late."""

    def job(group: Communicator) -> object:
        found = []
        for rates in ([1, 1, 0.7, 1], [1, 1, 0, 1]):
            group.set_rates(rates)
            data = np.arange(100_000, dtype=np.float32) + group.rank
            group.all_reduce(data)
            assert (data == 4 * np.arange(100_000, dtype=np.float32) + 6).all()
            name, _ = group._core.choice("all_reduce", 0, data.nbytes)
            found.append([name, group._core.program_hash("all_reduce", 0, data.nbytes)])
        with pytest.raises(ValueError, match="one for each of the 4 ranks"):
            group.set_rates([1, 1])
        with pytest.raises(ValueError, match="rates must be finite"):
            group.set_rates([0, 0, 0, 0])
        few = automatic_choice("all_reduce", 8, group.boxes, group.crowded)[0]
        assert group._core.choice("all_reduce", 0, 8)[0] == few
        return [*found, group._core.choice("broadcast", 0, 1 << 20)[0]]

    shares = [_core.shares_for([1, 1, rate, 1]) for rate in (0.7, 0)]
    expected = [["two_shot", _core.build("two_shot", "all_reduce", 4, shares=own).hash] for own in shares]
    assert on_ranks(4, job, hosts) == [[*expected, "dbt"]] * 4


# ---- when one is sure -----------------------------------------------------------------------------------------------


def measuring(*runs: dict[str, float]) -> Callable[..., Measured]:
    """Finds, time after time, these seconds of all_reduce of 8 bytes by algorithm."""
    left = iter(runs)
    return lambda *_, **__: Measured({Key("all_reduce", name): {8: took} for name, took in next(left).items()}, 0.0)


def test_it_measures_again_until_two_agree_on_the_best() -> None:
    ring, tree, tie = {"ring": 1.0, "dbt": 2.0}, {"ring": 2.0, "dbt": 1.0}, {"ring": 1.1, "dbt": 1.0}
    for runs in ((ring, ring), (ring, tree, tree), (tie, {"ring": 1.0, "dbt": 1.2})):
        assert measure_until_sure(None, {}, once=measuring(*runs)).doubt == ""  # type: ignore[arg-type]
    unsure = measure_until_sure(None, {}, once=measuring(ring, tree, ring))  # type: ignore[arg-type]
    assert unsure.doubt == "two measurements disagree: all_reduce of 8 bytes: dbt, then ring"
    assert {key.algorithm: points[8] for key, points in unsure.costs.items()} == {"ring": 1.0, "dbt": 1.0}


def test_an_unsure_result_keeps_the_older_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes are too few: what `tune` found before stays for jobs to come, unless one says otherwise."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = ("tune", "--collectives", "gather", "--repeat", "1")
    ran = run_command(*command, "--sizes", "8,4K")  # there is no older one: better than nothing
    assert ran.returncode == 0, ran.stderr
    place = Place.here([[0, 1]])
    first = table.load(place)
    assert first is not None
    ran = run_command(*command, "--sizes", "8,64K")
    assert ran.returncode == 0, ran.stderr
    assert "too few sizes for gather" in ran.stdout
    assert "unsure, so the older table stays for gather; --keep-anyway replaces it" in ran.stdout
    assert table.load(place) == first
    ran = run_command(*command, "--sizes", "8,64K", "--keep-anyway", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["kept_older"] == []
    replaced = table.load(place)
    assert replaced is not None
    assert {size for points in replaced.costs.values() for size in points} == {8, 64 << 10}
