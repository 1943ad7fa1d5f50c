"""What is wrong with a configuration is said in one sentence, with its place."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from syntony.base.command import UserError
from syntony.trainer.config import Config, load

CONFIGS = Path(__file__).parents[2] / "src/syntony/trainer/configs"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[modle]\nwidth = 3", r"1: unknown section \[modle\] \(did you mean model\?\)"),
        ("[model]\n\nwidht = 3", r"3: unknown key 'widht' in \[model\] \(did you mean width\?\)"),
        ("[model]\nwidth = 'x'", r"2: \[model\] width is 'x'; it must be a whole number"),
        ("[model]\nwidth = 1.5", "it must be a whole number"),
        ("[parallel]\nsequence = 1", "it must be true or false"),
        ("[model]\nactivation = 'relu'", r"2: \[model\] activation is 'relu'; it must be one of 'swiglu', 'gelu'"),
        ("[model]\n# one\nheads = 3", r"3: \[model\] heads is 3; it must divide width, which is 128"),
        ("[model]\nkv = 3", r"2: \[model\] kv is 3; it must divide heads, which is 4"),
        ("[model]\ntogether = 3", r"2: \[model\] together is 3; it must divide blocks, which is 4"),
        ("[model]\ntogether = 2\nexperts = 4", r"2: \[model\] together is 2; blocks in which something travels"),
        ("[model]\ntogether = 2\n[parallel]\ntp = 2", r"2: \[model\] together is 2; blocks in which something"),
        (
            "[data]\nmicrobatches = 3\n[parallel]\ndp = 2",
            r"2: \[data\] microbatches is 3; dp, which is 2, must divide it",
        ),
        ("[data]\nmicrobatches = 6\n[parallel]\ndp = 2", "3 per data rank: canonical sums need a power of two"),
        ("[data]\nshares = 3", r"2: \[data\] shares is 3; it must be a list"),
        ("[data]\nshares = [3, 4]\n[parallel]\ndp = 2", r"2: \[data\] shares is \(3, 4\); each must be 1 or more"),
        ("[data]\nshares = [3, 5]\n[parallel]\ntp = 2", r"there must be one for each data rank, and dp is 1"),
        ("[run]\nspeeds = [1, 0.5]\n[parallel]\ndp = 2", r"2: \[run\] speeds is \(1.0, 0.5\); they must be above 0"),
        ("[parallel]\ndp = 0", r"2: \[parallel\] dp is 0; it must be 1 or more"),
        ("[parallel]\nep = 2", r"\[model\] experts is 0"),
        (
            "[optimizer]\nname = 'LBFGS'",
            r"2: \[optimizer\] name is 'LBFGS'; it must be an elementwise one of torch.optim",
        ),
        ("[run]\nresume = 'newest'", r"2: \[run\] resume is 'newest'; then \[run\] save must name the folder"),
        ("[run]\nskew = 1.0", r"2: \[run\] skew is 1.0; tokens choose as their router says"),
        ("[overlap]\nfollow = 5", r"2: \[overlap\] follow is 5; it needs experts that are spread"),
        ("[overlap]\ntune = 1", r"2: \[overlap\] tune is 1; the first step of a setting is not counted"),
        ("[overlap]\npolicy = 'search'\ntune = 4", r"3: \[overlap\] tune is 4; it turns the knobs of a policy"),
        ("[optimizer\n", "not TOML"),
        ("steps = 3", "unknown section"),
        ("model = 3", "model is a section"),
    ],
)
def test_refusals(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence) as refused:
        load(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_settings_go_over_the_file_and_are_named(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[optimizer]\nlr = 1\noptions = {weight_decay = 0.5}\n")
    config = load(path, ["run.steps=7", "optimizer.options.foreach=true", "overlap.policy=dear", "data.source='a b'"])
    assert (config.run.steps, config.optimizer.lr, config.overlap.policy, config.data.source) == (7, 1.0, "dear", "a b")
    assert config.optimizer.options == {"weight_decay": 0.5, "foreach": True}
    for setting, sentence in {
        "run.stesp=7": "--set run.stesp=7: unknown key 'stesp'",
        "run.steps": "--set run.steps: it must be section.key=value",
        "run.steps=-1": "--set run.steps=-1: .* it must be 0 or more",
    }.items():
        with pytest.raises(UserError, match=sentence):
            load(path, [setting])


def test_a_name_is_of_a_bundled_file_unless_there_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in CONFIGS.glob("*.toml"):
        assert load(path.stem) == load(path)
    (tmp_path / "zero3").mkdir()
    assert load("zero3").parallel.zero == 3
    (tmp_path / "tiny").write_text("[run]\nsteps = 7\n")
    assert load("tiny").run.steps == 7
    for name in ("tniy", "none.toml"):
        with pytest.raises(
            UserError, match=f"^{name}: there is no such file; .* there are long, tiny, zero3( .did you mean .*)?$"
        ):
            load(name)


def test_our_own_files_load() -> None:
    paths = sorted(CONFIGS.glob("*.toml"))
    assert len(paths) >= 2
    for path in paths:
        assert load(path).model.hidden > 0


def test_every_key_has_a_section() -> None:
    assert {each.name for each in fields(Config)} == {
        "model", "data", "optimizer", "parallel", "overlap", "run", "elastic",
    }  # fmt: skip


def test_tokens_that_go_to_experts_in_turn() -> None:
    """Computing may be real: with `even`, shares by Zipf's law are allowed, too."""
    settings = ["model.experts=4", "run.even=true", "run.skew=1.0"]
    assert load("tiny", settings).even
    assert not load("tiny", settings[:1]).even
