"""What torch's hooks hear, and its flight recorder and health check with them: successes, then a rank that is missing.

Prints on each rank one line of JSON; the last line is of the ranks that waited for rank 1.
"""

import datetime
import json
import time

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

dist.init_process_group("syntony", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()


def entries() -> list[dict[str, object]]:
    return list(json.loads(c10d._dump_fr_trace_json(backend="syntony"))["entries"])


tensor = torch.ones(4)
dist.all_reduce(tensor)
work = dist.all_reduce(tensor, async_op=True)
work.wait()
lists = [torch.empty(4) for _ in range(3)]
dist.all_gather(lists, tensor)
dist.barrier()
late = time.monotonic() + 20
while not all(entry["retired"] for entry in entries()) and time.monotonic() < late:
    time.sleep(0.01)  # async successes are told on a completion thread
print(json.dumps([[entry["profiling_name"], entry["state"], entry["retired"]] for entry in entries()]), flush=True)
assert all(entry["duration_ms"] >= 0 for entry in entries())

aborts: list[int] = []
failing = dist.new_group(timeout=datetime.timedelta(seconds=1))
failing.register_abort_hook(7, lambda: aborts.append(7))
if rank == 1:
    dist.barrier()  # until the others have failed
else:
    with pytest.raises(dist.DistBackendError, match="rank 1"):
        dist.all_reduce(tensor, group=failing)
    assert aborts, "the abort hook heard nothing"
    told = entries()[-1]
    print(json.dumps([told["profiling_name"], told["state"], told["retired"]]), flush=True)
    dist.barrier()
dist.destroy_process_group()
