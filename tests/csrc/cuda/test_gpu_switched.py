"""Collectives through NVLink switches, on as many GPUs as there are; where GPUs cannot, that is one sentence."""

from __future__ import annotations

import numpy as np
import pytest

from tests.csrc.cuda.gpu import _cuda, needs_gpu

pytestmark = needs_gpu


def test_a_gpu_without_switches_says_so() -> None:
    if _cuda.describe(0)["multicast"]:
        pytest.skip("GPU 0 can join multicast objects")
    with pytest.raises(ValueError, match=r"GPU 0 \(.*\) cannot join a multicast object: that needs NVLink switches"):
        _cuda.Multicast(0, 2, 1 << 20)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter"])
def test_sums_and_copies_are_right(collective: str, dtype: str) -> None:
    ranks = int(_cuda.device_count())
    if ranks < 2 or not all(_cuda.describe(device)["multicast"] for device in range(ranks)):
        pytest.skip("needs two GPUs that NVLink switches connect")
    shape = _cuda.SwitchedShape(ranks)
    first = _cuda.Multicast(0, ranks, shape.bytes)
    memories = [first, *(_cuda.Multicast(rank, ranks, shape.bytes, first.exported()) for rank in range(1, ranks))]
    for memory in memories:
        memory.join()
    for memory in memories:
        memory.bind()
    groups = [_cuda.SwitchedGroup(memory, rank, shape) for rank, memory in enumerate(memories)]
    streams = [_cuda.Stream(rank) for rank in range(ranks)]
    for elements in (1, 1003, 3_000_001):
        given = elements * (ranks if collective == "reduce_scatter" else 1)
        kept = elements * (ranks if collective == "all_gather" else 1)
        data = [(np.arange(given) % 9 + rank).astype(dtype) for rank in range(ranks)]
        itemsize = data[0].itemsize
        inputs = [_cuda.Memory(rank, given * itemsize) for rank in range(ranks)]
        outputs = [_cuda.Memory(rank, kept * itemsize) for rank in range(ranks)]
        for rank, group in enumerate(groups):
            inputs[rank].write(data[rank].tobytes())
            group.set_timeout(20.0)
        for rank, group in enumerate(groups):
            group.launch(
                collective, dtype, "sum", inputs[rank].address, outputs[rank].address, elements, streams[rank].handle
            )
        for rank, group in enumerate(groups):
            streams[rank].synchronize()
            assert group.trouble() is None
        whole = np.concatenate(data) if collective == "all_gather" else np.sum(data, axis=0, dtype=dtype)
        for rank in range(ranks):
            wanted = whole[rank * elements : (rank + 1) * elements] if collective == "reduce_scatter" else whole
            assert outputs[rank].read(kept * itemsize) == wanted.tobytes(), (elements, rank)
