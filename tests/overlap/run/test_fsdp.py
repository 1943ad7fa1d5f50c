"""fsdp_hook: an unmodified FSDP2 loop gives the same losses, bit by bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectives.running import launch

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).with_name("fsdp_script.py")


@pytest.mark.parametrize(("backend", "prefetch"), [("syntony", 0), ("syntony", 2), ("gloo", 1)])
def test_the_same_losses_as_fsdp(backend: str, prefetch: int) -> None:
    done = launch(2, SCRIPT, backend, prefetch)
    assert done.stdout.count("passed") == 2, f"{done.stdout}\n{done.stderr[-3000:]}"


def test_a_model_that_is_not_sharded_is_refused() -> None:
    from syntony.base.command import UserError
    from syntony.overlap.run.fsdp import fsdp_hook

    model = torch.nn.Linear(2, 2)
    with pytest.raises(UserError, match="no module that fully_shard was applied to"):
        fsdp_hook(model, torch.optim.SGD(model.parameters()))
