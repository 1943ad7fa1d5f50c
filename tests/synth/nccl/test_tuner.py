"""Tables of choices for NCCL's tuner plugins: crossings, held-out sizes, sentences; the plugin itself, loaded as C."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syntony.__main__ import main
from syntony.synth.nccl.tuning.cost_model import Group, calibrated, predicted
from syntony.synth.nccl.tuning.measured import read_times
from syntony.synth.nccl.tuning.tuner import MOST_BYTES, Curve, Way, choices, table_text, way_named
from tests.sampled import examples

SOURCE = Path(__file__).parents[3] / "csrc" / "nccl_tuner" / "tuner.c"
SIZES = [1 << power for power in range(8, 31, 2)]

speed = st.tuples(st.floats(1e-6, 5e-4), st.floats(1e8, 4e11))


def nccl_tests(rows: list[tuple[int, float]]) -> str:
    """What nccl-tests prints."""
    head = (
        "# nThread 1 nGpus 1\n#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
    )
    rest = "1.0 1.9 0"
    body = [f" {size} {size // 4} float sum -1 {time * 1e6:.4f} {rest} {time * 2e6:.4f} {rest}" for size, time in rows]
    return head + "\n".join([*body, "# Avg bus bandwidth : 1.0", ""])


@given(st.lists(speed, min_size=2, max_size=4))
@examples(30)
def test_within_two_percent_on_held_out_sizes(models: list[tuple[float, float]]) -> None:
    """Times of NCCL's form, measured at every fourth power: at the powers between, the choice is nearly the best."""
    curves = [
        Curve(Way("ring", "simple", number + 1), [(size, latency + size / rate) for size in SIZES])
        for number, (latency, rate) in enumerate(models)
    ]
    found = choices(curves)
    assert [one.least for one in found] == [0, *(one.most + 1 for one in found[:-1])]
    assert found[-1].most == MOST_BYTES
    for size in [2 * size for size in SIZES[:-1]] + [3 * size for size in SIZES[:-1]]:
        chosen = next(one.way.channels - 1 for one in found if one.least <= size <= one.most)
        times = [latency + size / rate for latency, rate in models]
        assert times[chosen] <= 1.02 * min(times), size
    at_measured = [next(one.way.channels - 1 for one in found if one.least <= size <= one.most) for size in SIZES]
    for size, chosen in zip(SIZES, at_measured, strict=True):
        times = [latency + size / rate for latency, rate in models]
        assert times[chosen] <= min(times) * 1.001


@pytest.mark.parametrize("capability", [80, 90])
def test_predicted_trees_are_chosen_right_after_rings_were_measured(capability: int) -> None:
    """GPUs that are slower than the model by factors of their own: only rings are timed, at every fourth power."""
    group = Group(4, 32, capability, True, False, (12, 20.0), (12, 20.0))
    model = predicted(group, "all_reduce")
    truth = {one.way: replace(one, latency=1.3 * one.latency, per_byte=one.per_byte / 0.85) for one in model}
    timed = {way: [(size, one.at(size)) for size in SIZES] for way, one in truth.items() if way.algorithm == "ring"}
    rings = [Curve(way, times) for way, times in timed.items()]
    found = choices(calibrated(model, rings))
    assert {one.way.algorithm for one in found} == {"ring", "tree"}
    for size in [3 * size for size in SIZES[:-1]] + [2 * size for size in SIZES[:-1]]:
        chosen = next(one.way for one in found if one.least <= size <= one.most)
        assert truth[chosen].at(size) <= 1.02 * min(one.at(size) for one in truth.values()), size


def test_a_model_says_what_nccl_says() -> None:
    """By hand from tuning.cc: eight H100 with 24 channels of 20 GB/s; two hosts of one A100 and 2 channels of 12."""
    eight, two = (
        Group(1, 8, 90, True, False, (24, 20.0), (24, 20.0)),
        Group(2, 2, 80, False, True, (2, 12.0), (2, 12.0)),
    )
    inside = {str(one.way): one for one in predicted(eight, "all_reduce")}
    assert inside["ring/simple"].latency == pytest.approx((8.4 + 14 * 3.4) * 1e-6)
    assert 1e-9 / inside["ring/simple"].per_byte == pytest.approx(480 * 8 / 14)
    assert 1e-9 / inside["ring/ll"].per_byte == pytest.approx(141 * 8 / 14)
    assert inside["tree/ll128"].latency == pytest.approx((14 + 2 * 7 * 1.25) * 1e-6)
    assert 1e-9 / inside["tree/ll"].per_byte == pytest.approx(0.92 * 480 / 3.8 / 2)
    across = {str(one.way): one for one in predicted(two, "all_reduce")}
    assert not any("ll128" in name for name in across)
    assert across["ring/simple"].at(1 << 20) == pytest.approx(1.4 * (8.4 + 2 * 14) * 1e-6 + (1 << 20) / 24e9)
    assert across["tree/simple"].latency == pytest.approx((8.4 + 2 * 14) * 1e-6)


def test_predicted_tables_and_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, ring, tree = tmp_path / "t.csv", tmp_path / "ring.txt", tmp_path / "tree.txt"
    assert main(["export", "nccl-tuner", "all_reduce", "--on", "dgx1", "-o", str(table), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {one["measured"] for one in told["models"]} == {False}
    assert table.read_text().splitlines()[-1].endswith(",1,8,-1,-1")
    again = ["export", "nccl-tuner", "all_reduce", "-o", str(table), "--force"]
    assert main(again) == 2
    assert main([*again, "--on", "dgx1", "--ranks", "9"]) == 2
    assert "not so many" in capsys.readouterr().err
    ring.write_text(nccl_tests([(size, 5e-5 + size / 200e9) for size in SIZES]))
    tree.write_text(nccl_tests([(size, 4e-5 + size / 210e9) for size in SIZES]))
    words = ["--measured", f"ring/simple={ring}", "--measured", f"tree/ll={tree}", "--timeout", "1", "--json"]
    assert main(["advise", "dgx1", *words]) == 0
    advice = json.loads(capsys.readouterr().out)["advice"]
    assert all(one["ratio"] >= 1 for one in advice)
    assert 1.05 < advice[1]["ratio"] <= 1.25  # the tree is 5 to 25 % faster; the model leaves it too early
    assert main(["advise", "dgx1", *words[:2]]) == 2
    assert "two measured ways" in capsys.readouterr().err


def test_the_model_is_fitted() -> None:
    curve = Curve(Way("tree", "ll"), [(size, 7e-6 + size / 25e9) for size in SIZES])
    assert curve.latency == pytest.approx(7e-6)
    assert 1 / curve.per_byte == pytest.approx(25e9)
    assert curve.at(1 << 34) == pytest.approx(7e-6 + (1 << 34) / 25e9, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("rng/simple", "did you mean ring"), ("ring/simpel", "did you mean simple"), ("ring", "write algorithm/protocol")],
)
def test_ways_that_there_are_not(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        way_named(text)


def test_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(nccl_tests([(1024, 1e-5), (4096, 2e-5)]))
    assert read_times(path) == [(1024, pytest.approx(1e-5)), (4096, pytest.approx(2e-5))]
    rows = [{"size": 64, "out_of_place": {"time": 3.0, "nwrong": 0}}]
    path.write_text(json.dumps({"version": 3, "results": rows}))
    assert read_times(path) == [(64, pytest.approx(3e-6))]
    path.write_text(nccl_tests([(1024, 1e-5)]).replace(" 1.9 0 ", " 1.9 7 "))
    with pytest.raises(ValueError, match="t:3: 7 results of 1024 bytes were wrong"):
        read_times(path)
    path.write_text("nothing")
    with pytest.raises(ValueError, match="no row of nccl-tests"):
        read_times(path)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ring, tree, table = tmp_path / "ring.txt", tmp_path / "tree.txt", tmp_path / "choices.csv"
    ring.write_text(nccl_tests([(size, 5e-5 + size / 200e9) for size in SIZES]))
    tree.write_text(nccl_tests([(size, 1e-5 + size / 50e9) for size in SIZES]))
    words = ["--measured", f"ring/simple={ring}", "--measured", f"tree/ll128={tree}", "--nodes", "2", "--ranks", "16"]
    assert main(["export", "nccl-tuner", "all_reduce", *words, "-o", str(table)]) == 0
    lines = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    assert [line.split(",")[3:5] for line in lines] == [["tree", "ll128"], ["ring", "simple"]]
    assert lines[0].startswith("allreduce,0,")
    assert lines[1].endswith(f",{MOST_BYTES},ring,simple,-1,2,16,-1,-1")
    assert int(lines[1].split(",")[1]) == pytest.approx(4e-5 / (1 / 50e9 - 1 / 200e9), rel=0.15)
    capsys.readouterr()
    refused = ["--measured", f"nvls/simple={ring}", "-o", str(table), "--force"]
    assert main(["export", "rccl-tuner", "all_reduce", *refused]) == 2
    assert "nvls" in capsys.readouterr().err
    assert main(["export", "nccl-tuner", "all_to_all", *words, "-o", str(table), "--force"]) == 2
    assert "tuners choose for no others" in capsys.readouterr().err


_CONTEXT = ctypes.POINTER(ctypes.c_void_p)


class Plugin(ctypes.Structure):
    """Version 4 of the interface: the others differ in `init`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("init", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p, _CONTEXT)),
        (
            "choose",
            ctypes.CFUNCTYPE(
                ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p,
                ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int),
            ),
        ),
        ("destroy", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path_factory.mktemp("tuner") / "tuner.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
    subprocess.run([compiler, *flags, str(SOURCE), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    for version in (5, 6):
        assert getattr(loaded, f"ncclTunerPlugin_v{version}")
    return Plugin.in_dll(loaded, "ncclTunerPlugin_v4")


def chosen(
    plugin: Plugin, table: Path, size: int, *, impossible: tuple[int, int] | None = None
) -> tuple[int, int, int]:
    """Algorithm, protocol and channels of an all_reduce, as NCCL would take them: the least cost; -1 for none."""
    os.environ["NCCL_TUNER_CONFIG_FILE"] = str(table)
    context, channels = ctypes.c_void_p(), ctypes.c_int(-1)
    if plugin.init(16, 2, None, ctypes.byref(context)):
        return -1, -1, -1
    costs = (ctypes.c_float * 21)(*([100.0] * 21))
    if impossible:
        costs[3 * impossible[0] + impossible[1]] = -1.0
    assert plugin.choose(context, 4, size, 1, ctypes.cast(costs, ctypes.c_void_p), 7, 3, 0, ctypes.byref(channels)) == 0
    assert plugin.destroy(context) == 0
    best = min(range(21), key=lambda entry: costs[entry] if costs[entry] >= 0 else 1e9)
    return (*divmod(best, 3), channels.value) if costs[best] == 0 else (-1, -1, -1)


def test_the_plugin_follows_the_table(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_TUNER_CONFIG_FILE", "")
    curves = [
        Curve(Way("tree", "ll128"), [(size, 1e-5 + size / 50e9) for size in SIZES]),
        Curve(Way("ring", "simple", 16), [(size, 5e-5 + size / 200e9) for size in SIZES]),
    ]
    table = tmp_path / "t.csv"
    found = choices(curves)
    table.write_text(table_text("all_reduce", found, nodes=2, ranks=16))
    edge = found[0].most
    told = [chosen(plugin, table, size) for size in (0, edge, edge + 1, 1 << 33)]
    assert told == [(0, 1, -1)] * 2 + [(1, 2, 16)] * 2
    assert chosen(plugin, table, 64, impossible=(0, 1)) == (-1, -1, -1)
    table.write_text(table_text("all_reduce", found, nodes=3, ranks=16))
    assert chosen(plugin, table, 64) == (-1, -1, -1)


@pytest.mark.parametrize(
    "line",
    [
        "allreduce,0,9,ring,simple",
        "allsum,0,9,ring,ll,-1,-1,-1",
        "allreduce,9,0,ring,ll,-1,-1,-1",
        "allreduce,0,x,ring,ll,-1,-1,-1",
        "allreduce,0,9,ring,ll,many,-1,-1",
        "," * 300,
    ],
)
def test_a_malformed_table_is_refused(
    plugin: Plugin, tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_TUNER_CONFIG_FILE", "")
    table = tmp_path / "t.csv"
    table.write_text(f"# a comment\n\n{line}\n")
    assert chosen(plugin, table, 1) == (-1, -1, -1)
