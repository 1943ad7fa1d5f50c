"""The torch backend on CUDA tensors: processes that share one GPU, by the executor's kernels and by way of the host.

Without MPS, kernels of different processes take turns on a GPU, time slice by time slice: nothing here is about speed.
"""

from __future__ import annotations

import pytest

from tests.collectives.running import HERE, ROOT, launch
from tests.csrc.cuda.gpu import needs_gpu

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA, or sees no GPU", allow_module_level=True)
pytestmark = needs_gpu

CASES = (
    "every_call",
    "in_pieces",
    "strided",
    "side_streams",
    "in_flight",
    "freed_at_once",
    "messages",
    "futures",
    "killed",
    "time_out",
    "groups_come_and_go",
    "data_parallel",
    "sharded",
    "trained_alike",
)


@pytest.mark.parametrize("staged", ["", "1"], ids=["kernels", "staged"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_on_one_gpu(case: str, ranks: int, staged: str) -> None:
    script = HERE / "torch_backend" / "device" / "device_cases.py"
    done = launch(ranks, script, case, DEVICE="cuda", STAGED=staged, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.count("as it should be") == ranks - (case == "killed"), done.stdout + done.stderr[-2000:]
