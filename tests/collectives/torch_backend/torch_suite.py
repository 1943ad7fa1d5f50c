"""Runs torch's own distributed test-suite, as it lies in the wheel, against one backend.

    python tests/collectives/torch_backend/torch_suite.py --backend syntony --world-size 3 [--skips-of mpi] [--json F]
    [--without REGEX] [NAME ..]

The suite decides by the environment variable BACKEND what to skip. It does not know "syntony", so BACKEND is "gloo"
(whose tests are what a CPU backend must do) or, for the tests of all_to_all that it keeps for MPI, "mpi"; and
`init_process_group` is told our name instead.
Ranks are forked, not spawned: a minute instead of twenty. Two tests of three skip themselves, most for want of a GPU;
a process by itself asks them all first, as ranks that meet only to skip would take most of the time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import signal
import sys
import time
import types
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from syntony.collectives.torch_backend.replace import replace_as_asked


class Outcomes(unittest.TestResult):
    """Keeps one word per test: pass, skip or fail; and the last lines of each failure."""

    def __init__(self, quiet: bool) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}
        self.reports: dict[str, str] = {}
        self.seconds: dict[str, float] = {}
        self._quiet = quiet

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().startTest(test)
        self._started = time.monotonic()

    def _note(self, test: unittest.TestCase, outcome: str, report: str = "") -> None:
        name = test.id().rsplit(".", 1)[-1]
        self.outcomes[name] = outcome
        self.seconds[name] = round(time.monotonic() - self._started, 2)
        if report:
            self.reports[name] = report
        if not self._quiet:
            print(f"{outcome:5} {self.seconds[name]:6.2f} {name}", file=sys.stderr, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._note(test, "pass")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._note(test, "skip")

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self._note(test, "fail", self._exc_info_to_string(err, test))  # type: ignore[attr-defined]

    addFailure = addError  # noqa: N815 (unittest's name)


def load_suite(backend: str, world_size: int, skips_of: str = "gloo") -> type[unittest.TestCase]:
    """The suite's test class, with ranks that join through `backend`. Sets the environment that the suite reads."""
    os.environ |= {"BACKEND": skips_of, "WORLD_SIZE": str(world_size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    os.environ.setdefault("TEMP_DIR", "")
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = "60"  # seconds; the slowest takes 3 when nothing else runs
    sys.argv = sys.argv[:1]  # the suite's modules parse it when imported

    import torch
    import torch.distributed as dist
    import torch.multiprocessing
    from torch.testing._internal.common_distributed import TEST_SKIPS
    from torch.testing._internal.distributed import distributed_test as suite

    if backend == "syntony" or "SYNTONY_REPLACE" in os.environ:  # once here, not by every rank of every test
        import syntony.collectives.torch_backend.backend  # noqa: F401
    replace_as_asked()  # torch may have been imported before the environment said so

    torch.set_num_threads(1)
    init_process_group = dist.init_process_group

    def init_with_backend(*arguments: Any, **options: Any) -> None:
        if options.get("backend") == skips_of:
            options["backend"] = backend
        init_process_group(*arguments, **options)

    dist.init_process_group = init_with_backend
    # The suite's barrier between processes polls files every 0.1 s, several times a test.
    patient = suite.time
    brisk = {"sleep": lambda seconds: patient.sleep(0.01 if seconds == 0.1 else seconds)}
    suite.time = types.SimpleNamespace(**{**vars(patient), **brisk})

    skipped = {skip.exit_code for skip in TEST_SKIPS.values()}

    class ForkedSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):  # type: ignore[misc]
        @classmethod
        def setUpClass(cls) -> None:
            super().setUpClass()
            gc.freeze()  # a collection would copy every page that it marks, in every rank
            names = unittest.defaultTestLoader.getTestCaseNames(cls)
            cls.skipping = _skipping([(name, cls(name)) for name in names], skipped)

        def setUp(self) -> None:
            super().setUp()
            if self._testMethodName in self.skipping:
                self.skipTest("as its decorators say")
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return ForkedSuite


def _skipping(tests: list[tuple[str, Any]], codes: set[int]) -> set[str]:
    """The tests that skip themselves, tried without a process group: whoever gets past the decorators fails at its
    first call. A child tries them in turn; where one ends or holds it up, another goes on behind that."""
    found: set[str] = set()
    while tests:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            for name, test in tests:
                signal.alarm(10)
                os.write(writing, b"1" if _skips(name, test, codes) else b"0")
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            answers = told.read()
        os.waitpid(child, 0)
        found |= {name for (name, _), answer in zip(tests, answers, strict=False) if answer == ord("1")}
        tests = tests[len(answers) + 1 :]  # who ended the child did not skip
    return found


def _skips(name: str, test: Any, codes: set[int]) -> bool:
    try:
        test.rank = 0
        getattr(test, name)()
    except unittest.SkipTest:
        return True
    except SystemExit as end:
        return end.code in codes
    except BaseException:
        return False
    return False


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="syntony")
    parser.add_argument("--world-size", type=int, default=3)
    parser.add_argument("--skips-of", choices=["gloo", "mpi"], default="gloo", help="skip what the suite skips for it")
    parser.add_argument("--json", help="write outcomes here")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--without", metavar="REGEX", help="leave out tests whose names have this")
    parser.add_argument("names", nargs="*", help="tests to run (default: all)")
    arguments = parser.parse_args(words)

    case = load_suite(arguments.backend, arguments.world_size, arguments.skips_of)
    names = arguments.names or unittest.defaultTestLoader.getTestCaseNames(case)
    if arguments.without:
        names = [name for name in names if not re.search(arguments.without, name)]
    result = Outcomes(arguments.quiet)
    started = time.monotonic()
    unittest.TestSuite(case(name) for name in names).run(result)
    count = {word: list(result.outcomes.values()).count(word) for word in ("pass", "skip", "fail")}
    for name, report in result.reports.items():
        print(f"---- {name}\n{report}")
    print(f"{arguments.backend}, {arguments.world_size} ranks: {count}, {time.monotonic() - started:.0f} s")
    if arguments.json:
        with Path(arguments.json).open("w") as file:
            json.dump(
                {"outcomes": result.outcomes, "seconds": result.seconds, "reports": result.reports}, file, indent=1
            )
    return 1 if count["fail"] else 0


if __name__ == "__main__":
    sys.exit(main())
