"""What `make test-clients` calls a fault. The clients themselves are not run here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.__main__ import Part, Run, difference, faults, table
from tests.clients.clients import CLIENTS, Client

SCRIPTS = Path(__file__).parent / "scripts"
CLIENT = Client("some", "Some", "torch")
REFUSING = Client("some", "Some", "torch", refuses="is not available", why="`f` knows gloo")
GLOO = Run({"": Part((1.0, 0.5), 0.1, "gloo")}, 0, "")


def _ran(*losses: float, served: str = "syntony", code: int | None = 0, said: str = "") -> Run:
    return Run({"": Part(losses, 0.1, served)} if losses else {}, code, said)


def test_every_script_has_a_row() -> None:
    found = {path.stem for path in SCRIPTS.glob("*.py")} - {"report"}
    assert found == {client.script for client in CLIENTS}
    assert all(client.why for client in CLIENTS if client.refuses or not client.replaceable)


def test_equal_losses_on_the_backend_that_was_asked_for_are_no_fault() -> None:
    assert not faults(CLIENT, "gloo", GLOO, GLOO)
    for mode in ("name", "replace"):
        assert not faults(CLIENT, mode, _ran(1.0, 0.5), GLOO)
    assert not faults(REFUSING, "name", _ran(code=1, said="Your backend is not available"), GLOO)


@pytest.mark.parametrize(
    ("ran", "told"),
    [
        (_ran(1.0, 0.6), "differ from gloo's by 0.2"),
        (_ran(1.0), "differ from gloo's by inf"),
        (_ran(1.0, float("nan")), "differ from gloo's by inf"),
        (_ran(1.0, 0.5, served="gloo"), "served by gloo, not by syntony"),
        (_ran(), "told nothing"),
        (_ran(1.0, 0.5, code=1, said="the reason"), "exit code 1\nthe reason"),
        (_ran(1.0, 0.5, code=None), "ended after"),
    ],
)
def test_faults_are_told(ran: Run, told: str) -> None:
    assert told in "\n".join(faults(CLIENT, "replace", ran, GLOO))


def test_a_client_that_has_learned_the_name_is_told() -> None:
    assert "has it learned the name?" in faults(REFUSING, "name", _ran(1.0, 0.5), GLOO)[0]


def test_difference_is_relative() -> None:
    assert difference((100.0, 0.0), (100.0, 0.0)) == 0
    assert difference((101.0,), (100.0,)) == pytest.approx(0.01)


def test_the_table_names_what_prevents_a_client() -> None:
    text = table({"accelerate_ddp": ["| accelerate | 1 | 2 | 3.0 | [^] | 4.0 | equal |"]})
    assert "| (1) | 4.0 |" in text
    assert "\n1. accelerate: `PartialState._prepare_backend`" in text
