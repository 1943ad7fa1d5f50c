"""python -m benchmarks.cuda [--ranks 4] [--bytes 8192 1048576 268435456]"""

from __future__ import annotations

import argparse
import os
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda", description="Several ranks on one GPU.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--bytes", type=int, nargs="+", default=[8 << 10, 1 << 20, 16 << 20, 256 << 20])
    arguments = parser.parse_args()
    # Streams that share a queue of the GPU would wait for each other; read when CUDA starts.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        from csrc import _cuda
    except ImportError:
        print("the CUDA executor was not built here: there is no nvcc", file=sys.stderr)
        return 2
    if _cuda.device_count() == 0:
        print("there is no GPU here", file=sys.stderr)
        return 2
    if any(size < 4 * arguments.ranks or size % (4 * arguments.ranks) for size in arguments.bytes):
        print(f"sizes must be multiples of {4 * arguments.ranks} bytes: an int32 for every rank", file=sys.stderr)
        return 2
    from benchmarks.cuda.one_gpu import results

    print(f"# one GPU, several ranks ({arguments.ranks}); `of copy`: fraction of what a copy on the same GPU allows")
    print(f"{'bytes':>12}  {'collective':14} {'algorithm':14} {'protocol':8} {'us':>10}  {'of copy':>7}")
    for result in results(arguments.ranks, arguments.bytes):
        case = result.case
        print(
            f"{case.bytes:12}  {case.collective:14} {case.algorithm:14} {case.protocol:8}"
            f" {result.seconds * 1e6:10.2f}  {result.fraction:7.3f}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
