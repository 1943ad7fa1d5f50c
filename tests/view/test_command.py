"""`syntony view` on the command line: pictures, what it refuses, serving, notebooks."""

from __future__ import annotations

import json
import pickle
import threading
import urllib.request
from pathlib import Path

import pytest

from syntony.__main__ import main
from syntony.base.command import UserError
from syntony.overlap.step.plan import Plan
from syntony.synth.formats.loading import read
from syntony.topologies.file_format import to_json
from syntony.topologies.parse import parse
from syntony.view.kinds import Options, views
from syntony.view.notebook import show
from syntony.view.picture import panels_of
from syntony.view.serve import server
from tests.view.files import DATA, KINDS


@pytest.mark.parametrize("suffix", [".svg", ".pdf", ".png"])
def test_pictures(files: dict[str, list[str]], tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / f"picture{suffix}"
    assert main(["view", *files["bench results"], "-o", str(picture)]) == 0
    assert picture.read_bytes()[:5] in (b"<?xml", b"%PDF-", b"\x89PNG\r")
    assert "bus bandwidth over size" in capsys.readouterr().out


@pytest.mark.parametrize("panel", ["tree", pytest.param("chunks", marks=pytest.mark.sweep), "links"])
def test_panels_of_a_schedule(files: dict[str, list[str]], tmp_path: Path, panel: str) -> None:
    picture = tmp_path / "picture.svg"
    assert main(["view", *files["schedule"], "--panel", panel, "-o", str(picture)]) == 0
    assert "all_gather on dgx1" in picture.read_text()


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_every_panel_is_a_picture(files: dict[str, list[str]], tmp_path: Path, kind: str) -> None:
    for view in views(files[kind], Options()):
        for title, _ in panels_of(view):
            assert main(["view", *files[kind], "--panel", title, "--force", "-o", str(tmp_path / "p.png")]) == 0


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["view", *words]) == 2
    return capsys.readouterr().err


def test_what_is_refused(tmp_path: Path, files: dict[str, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    page = str(tmp_path / "v.html")
    assert "none of what `view` knows" in told([str(tmp_path / "notes.txt"), "-o", page], capsys)
    assert "there is no such file" in told(["nosuchthing", "-o", page], capsys)
    assert "say what to see" in told(["-o", page], capsys)
    assert "say where to" in told(["ring:3"], capsys)
    assert "must end in" in told(["ring:3", "-o", str(tmp_path / "v.gif")], capsys)
    assert "no panel begins so; there are network" in told(
        ["ring:3", "--panel", "gantt", "-o", str(tmp_path / "v.svg")], capsys
    )
    assert "a page has all panels" in told(["ring:3", "--panel", "network", "-o", page], capsys)
    assert "it has 3 ranks, the results are of 2" in told(
        [*files["bench results"], "--topology", "ring:3", "-o", page], capsys
    )
    assert not Path(page).exists()


def test_a_bench_gets_the_limit_of_its_wires(files: dict[str, list[str]]) -> None:
    (view,) = views(files["bench results"], Options(topology="full:2,bandwidth=2e9"))
    limit = view.panels[0].series[-1]  # type: ignore[union-attr]
    assert limit.limit
    assert limit.y.tolist() == [2e9] * 3


def test_pickles_run_nothing(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "run",))

    (tmp_path / "trace_rank_0").write_bytes(pickle.dumps({"entries": [Evil()], "pg_config": {}}, protocol=2))
    with pytest.raises(UserError, match="it would run code"):
        views([str(tmp_path / "trace_rank_0")], Options())
    assert not (tmp_path / "run").exists()


def test_json_for_programs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["view", "ring:3", "--json", "-o", str(tmp_path / "v.html")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["command"], found["views"][0]["kind"]) == ("view", "topology")
    assert main(["view", "--kinds"]) == 0
    assert "nccl-log" in capsys.readouterr().out


def test_serving_follows_the_file(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(to_json(parse("ring:3")))
    with server([str(file)], Options(), 0) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{listening.server_address[1]}"

        def ask(path: str) -> str:
            with urllib.request.urlopen(address + path) as answer:
                return str(answer.read().decode())

        before = ask("/changed")
        assert "ring:3" in ask("/")
        file.write_text(to_json(parse("ring:5")))
        assert ask("/changed") != before
        assert "ring:5" in ask("/")
        file.write_text("{")
        assert "cannot be read" in ask("/")
        listening.shutdown()


def test_the_data_are_recognized_by_content(tmp_path: Path) -> None:
    for name, kind in (("nccl.log", "NCCL log"), ("osu.txt", "bench results"), ("ras.json", "NCCL RAS")):
        copy = tmp_path / f"{kind} without an ending"
        copy.write_bytes((DATA / name).read_bytes())
        assert [view.kind for view in views([str(copy)], Options())] == [kind]


def test_notebooks_show_topologies_schedules_plans_and_files(files: dict[str, list[str]]) -> None:
    """A frame of its own for each; a schedule that is wrong is shown as that."""
    plan = Plan.read(files["training step"][0])
    wrong = read(files["invalid schedule"][0]).content
    results = show(*files["bench results"])
    for value, words in (
        (parse("ring:3"), "ring:3"),
        (wrong, "refused"),
        (plan, "fifo"),
    ):
        frame = value._repr_html_()  # type: ignore[union-attr]
        assert frame.startswith("<iframe")
        assert words in frame
    assert "is the fastest" in repr(results)
    assert results._repr_html_().count("<iframe") == 1


def test_levels_can_be_highlighted() -> None:
    (view,) = views(["torus:4x4"], Options())
    levels = [one for one in view.panels[0].highlights if one.name.startswith("level")]  # type: ignore[union-attr]
    assert [(one.nodes, len(one.links)) for one in levels] == [((0, 4, 8, 12), 32), ((0, 1, 2, 3), 32)]
