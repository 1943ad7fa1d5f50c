"""The runtime under the thread, address and undefined behaviour sanitizers: stress.cpp, linked with the whole core.

Left out of the default run: a build takes minutes. `pytest -m soak tests/csrc/runtime/test_sanitizers.py`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PER_FILE = {
    "kernels_avx2": ["-mavx2", "-mf16c"],
    "kernels_avx512": [f"-mavx512{part}" for part in ("f", "bw", "dq", "vl")],
}


@pytest.fixture(scope="session", params=["thread", "address,undefined"])
def stress(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program built with one sanitizer."""
    folder = tmp_path_factory.mktemp("sanitized")
    # GCC's thread sanitizer does not know fences: it warns where one is used, beside what it can see.
    flags = ["-std=c++20", "-O1", "-g", f"-fsanitize={request.param}", "-Wno-psabi", "-Wno-tsan", f"-I{ROOT / 'csrc'}"]
    sources = [*(ROOT / "csrc" / "core").rglob("*.cpp"), Path(__file__).with_name("stress.cpp")]
    objects = " ".join(f"{folder}/{source.stem}.o" for source in sources)
    rules = [f"{folder}/stress: {objects}\n\tg++ {' '.join(flags)} $^ -lpthread -o $@\n"]
    for source in sources:
        extra = " ".join(PER_FILE.get(source.stem, []))
        rules.append(f"{folder}/{source.stem}.o: {source}\n\tg++ {' '.join(flags)} {extra} -c $< -o $@\n")
    makefile = folder / "Makefile"
    makefile.write_text("\n".join(rules))
    subprocess.run(["make", "-s", "-j2", "-f", makefile], check=True, timeout=1200)
    return folder / "stress"


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engines", ["own", "shared"])
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("slot_bytes", ["4096", "131072"])
def test_the_runtime_is_clean(stress: Path, ranks: int, engines: str, slot_bytes: str) -> None:
    environment = {**os.environ, "SYNTONY_SLOT_BYTES": slot_bytes, "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [stress, str(ranks), engines, "5"], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr[-8000:]
