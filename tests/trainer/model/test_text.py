"""Text: the same windows for the same microbatch, the same split for the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from syntony.base.command import UserError  # noqa: E402
from syntony.trainer.config import Data  # noqa: E402
from syntony.trainer.run.text import read  # noqa: E402


def folder_of(path: Path, count: int) -> Path:
    for index in range(count):
        (path / f"{index}.py").write_text(f"# file {index}\n" * (index + 5))
    return path


def test_batches_depend_on_step_and_microbatch_only(tmp_path: Path) -> None:
    data = Data(source=str(folder_of(tmp_path, 60)))
    text, again = read(data, 16), read(data, 16)
    tokens, targets = text.batch(0, 5, 3, 4, 16)
    assert tokens.shape == targets.shape == (4, 16)
    assert torch.equal(tokens[:, 1:], targets[:, :-1])
    assert torch.equal(tokens, again.batch(0, 5, 3, 4, 16)[0])
    for other in ((1, 5, 3), (0, 6, 3), (0, 5, 2)):
        assert not torch.equal(tokens, text.batch(*other, 4, 16)[0])
    assert torch.equal(text.batch(0, None, 0, 2, 16)[0], again.batch(0, None, 0, 2, 16)[0])


def test_a_new_file_moves_no_other(tmp_path: Path) -> None:
    data = Data(source=str(folder_of(tmp_path, 60)))
    before = read(data, 16)
    (tmp_path / "zz.py").write_text("something new" * 9)
    after = read(data, 16)
    assert before.digest != after.digest
    assert after.training.tobytes().startswith(before.training.tobytes())
    assert after.validation.tobytes().startswith(before.validation.tobytes())
    assert 0 < before.validation.size < before.training.size


def test_too_little_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no file '\*\.py' in it"):
        read(Data(source=str(tmp_path)), 16)
    (tmp_path / "a.py").write_text("short")
    with pytest.raises(UserError, match="has 4 bytes to learn; one sequence takes 17"):
        read(Data(source=str(tmp_path)), 16)
    (tmp_path / "a.py").write_text("longer" * 10)
    assert read(Data(source=str(tmp_path)), 16).training.size > 17
    with pytest.raises(UserError, match="has 6 bytes held out; one sequence takes 17"):
        read(Data(source=str(tmp_path)), 16, held_out=True)
