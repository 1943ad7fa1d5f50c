"""Files that nobody wrote: every reader refuses them in a sentence, or what it read is proven; never a traceback.

Seeds are small files of every format that is read; a mutant has bits, pieces, numbers or values changed. `make fuzz`
takes a hundred times as many. (Documents that are right in form and wrong in meaning: test_foreign_mutants.py.)
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from syntony.base.command import UserError
from syntony.synth.formats import schedule_file
from syntony.synth.formats.export_options import ExportOptions
from syntony.synth.formats.loading import load
from syntony.synth.formats.msccl.json_export import msccl_json_text
from syntony.synth.formats.mscclpp.export import mscclpp_text
from syntony.synth.formats.program_file import program_text
from tests.synth.formats.test_msccl_xml import PAIR
from tests.synth.programs import exchange, ring_all_reduce
from tests.synth.schedules import ring_all_gather

VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**63, 10**30, 0.5, 1e300, float("nan"), float("inf")),
    *(
        "",
        "0",
        "1/0",
        "all_reduce",
        "\x00",
        "é" * 1000,
        "../../etc/passwd",
        None,
        True,
        False,
        [],
        {},
        [[]],
        [0],
        {"a": 1},
    ),
)


@cache
def seeds(folder: Path) -> dict[str, bytes]:
    """By file name; the sidecar lies in `folder`, beside where mutants go."""
    schedule_file.write(ring_all_gather(3), folder / "schedule.json")
    schedule_file.write(ring_all_gather(3), folder / "large.json", sidecar_rows=0)
    return {
        "schedule.json": (folder / "schedule.json").read_bytes(),
        "large.json": (folder / "large.json").read_bytes(),
        "program.json": program_text(ring_all_reduce(3)).encode(),
        "plan.json": mscclpp_text(ring_all_reduce(3), ExportOptions()).encode(),
        "algorithm.json": msccl_json_text(ring_all_gather(3)).encode(),
        "exchange.json": program_text(exchange(3)).encode(),
        "pair.xml": PAIR.encode(),
    }


def changed_bytes(data: bytes, rng: random.Random) -> bytes:
    """A bit, a byte, a piece less, twice or elsewhere, or the end missing."""
    text = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at, length = rng.randrange(len(text) + 1), rng.randrange(1, 40)
        match rng.randrange(6):
            case 0 if at < len(text):
                text[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(text):
                text[at] = rng.randrange(256)
            case 2:
                del text[at : at + length]
            case 3:
                text[at:at] = text[at : at + length]
            case 4:
                text[at:at] = rng.choice(
                    (b"[" * 5000, b"&lt;", b"\xff\xfe", b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b'"', b"}")
                )
            case _ if rng.randrange(8) == 0:
                del text[at:]
    return bytes(text)


def changed_number(data: bytes, rng: random.Random) -> bytes:
    """One number of the text is another."""
    numbers = list(re.finditer(rb"-?\d+", data))
    chosen = rng.choice(numbers)
    value = rng.choice([number for number in VALUES if type(number) is int])
    return data[: chosen.start()] + str(value).encode() + data[chosen.end() :]


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON document with every key or index in it."""
    inside = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    found: list[tuple[Any, Any]] = []
    for key, value in inside:
        found += [(document, key), *places(value)]
    return found


def changed_value(data: bytes, rng: random.Random) -> bytes:
    """One value of a JSON document is another, is missing, or is there twice."""
    document = json.loads(data)
    for _ in range(rng.randrange(1, 3)):
        found = places(document)
        if not found:
            break
        container, key = rng.choice(found)
        match rng.randrange(4):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.insert(key, container[key])
            case 2:
                other, where = rng.choice(found)
                container[key] = (
                    json.loads(json.dumps(other[where]))
                    if where in (other if isinstance(other, dict) else range(len(other)))
                    else 0
                )
            case _:
                container[key] = rng.choice(VALUES)
    return json.dumps(document).encode()


def attack(folder: Path, count: int, seed: int, told: Callable[[str], None] = lambda _: None) -> None:
    rng = random.Random(seed)
    originals = seeds(folder)
    sidecar = next(path for path in folder.iterdir() if path.name.startswith("large") and path.suffix != ".json")
    whole = sidecar.read_bytes()
    proven = 0
    for number in range(count):
        name = rng.choice(sorted(originals))
        change = rng.choice([changed_bytes, changed_number, *([changed_value] * 2 if name.endswith("json") else [])])
        if name == "large.json" and rng.randrange(3) == 0:
            sidecar.write_bytes(changed_bytes(whole, rng))
            content = originals[name]
        else:
            sidecar.write_bytes(whole)
            content = change(originals[name], rng)
        path = folder / f"mutant-{name}"
        path.write_bytes(content)
        try:
            load(path)
            proven += 1
        except UserError as error:
            if "\n" in str(error):
                raise AssertionError(f"seed {seed}, file {number}: more than a sentence: {error}") from None
        except Exception as error:
            raise AssertionError(f"seed {seed}, file {number} ({path}): {type(error).__name__}: {error}") from error
    told(f"files: {count} mutants, {proven} of them proven (seed {seed})")


def test_files_that_nobody_wrote(tmp_path: Path) -> None:
    attack(tmp_path, 300, random.SystemRandom().randrange(1 << 32))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_files_that_nobody_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def show(line: str) -> None:
        with capsys.disabled():
            print("\n" + line)

    attack(tmp_path, 30_000, random.SystemRandom().randrange(1 << 32), show)
