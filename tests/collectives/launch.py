"""Runs a script on several ranks, as torchrun would, but forked from one process that has imported torch already.

All scripts of a folder run one after another, each on fresh ranks, under a line with its name. Exits with 1 when a
rank fails, after ending the others. A rank that is killed (SIGKILL) is no failure here: that the others notice is what
such a test is about.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from pathlib import Path


def _host_store(report: Connection) -> None:
    """The ranks' rendezvous, in a process of its own: whichever rank ends first, the store stays, and its port is taken
    before anybody connects to it."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    report.send(store.port)
    signal.pause()


def _rank(rank: int, ranks: int, port: int, script: str, arguments: list[str], abrupt: bool) -> None:
    """One rank's life. `abrupt` spares it the interpreter's tear-down, where gloo may wait for its own thread for ever
    (a ProcessGroupGloo that dies with a DDP model, under the interpreter's lock that its thread wants)."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # as under torchrun: rank 0 is a client, too
    }
    sys.argv = [script, *arguments]
    try:
        scope = {"__name__": "__main__", "__file__": script}
        exec(compile(Path(script).read_text(), script, "exec"), scope)  # its variables live on in `scope`
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        raise SystemExit(1) from None
    if abrupt:
        sys.stdout.flush()
        os._exit(0)


def run(ranks: int, script: str, arguments: list[str], abrupt: bool = False) -> bool:
    """True when no rank failed."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    host = context.Process(target=_host_store, args=(sender,), daemon=True)
    host.start()
    port = receiver.recv()
    processes = [
        context.Process(target=_rank, args=(rank, ranks, port, script, arguments, abrupt)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    running = {process.sentinel: process for process in processes}
    good = True
    while running:
        for sentinel in connection.wait(list(running)):
            process = running.pop(sentinel)  # type: ignore[call-overload]
            process.join()
            if process.exitcode not in (0, -signal.SIGKILL) and good:
                good = False
                for other in running.values():
                    other.terminate()
    host.kill()
    host.join()
    return good


def launch(ranks: int, path: Path, arguments: list[str]) -> int:
    """What running.launch() starts: 0 when no rank failed."""
    import torch.distributed

    torch.distributed.set_debug_level_from_env()  # torch has read it before this environment was set
    abrupt = "gloo" in arguments
    if path.is_file():
        return 0 if run(ranks, str(path), arguments, abrupt) else 1
    good = True
    for script in sorted(path.glob("*.py")):
        print(f"== {script.stem}", flush=True)
        good &= run(ranks, str(script), arguments, abrupt)
    return 0 if good else 1


def torchrun(ranks: int, words: list[str], fresh: bool) -> int:
    """What running.torchrun() starts: its agent is this process, and the ranks are forked from it unless `fresh`."""
    from torch.distributed.run import main

    # As --standalone does, but by number: a thread of the agent that looks a name up while ranks are forked would leave
    # them glibc's resolver locked for ever.
    alone = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--local-addr", "127.0.0.1")
    how = () if fresh else ("--start-method", "fork", "--run-path")
    main([*alone, "--nproc-per-node", str(ranks), *how, *words])
    return 0
