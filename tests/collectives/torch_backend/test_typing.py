"""What users import is typed: a script of theirs passes mypy --strict, and a wrong one does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.running import HERE, run_python

pytest.importorskip("mypy")


def test_a_typed_script_runs() -> None:
    done = run_python(HERE / "torch_backend" / "typed_script.py", PYTHONPATH=str(HERE.parents[1]))
    assert done.returncode == 0, done.stderr


@pytest.mark.timeout(300)
def test_mypy_reads_it(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from syntony import Communicator\n\n\n"
        "def use(group: Communicator) -> str:\n"
        '    group.broadcast([1.0], root="0")\n'
        "    return group.rank\n"
    )
    done = run_python("-m", "mypy", "--strict", HERE / "torch_backend" / "typed_script.py", wrong, timeout=280)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "typed_script.py" not in done.stdout, done.stdout
    assert 'incompatible type "str"; expected "int"' in done.stdout, done.stdout
    assert 'got "int", expected "str"' in done.stdout, done.stdout
