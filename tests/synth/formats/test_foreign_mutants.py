"""Foreign documents with one thing changed: refused with a sentence, or right by the word of an interpreter that reads
the document itself and shares nothing with readers and checker. Fast ones here; with -m soak, ten thousand."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from syntony import _core
from syntony.base.command import UserError
from syntony.synth.checker import check_program, check_schedule
from syntony.synth.formats.export_options import ExportOptions
from syntony.synth.formats.msccl.json_export import msccl_json_text
from syntony.synth.formats.msccl.json_file import read_msccl_json
from syntony.synth.formats.msccl.xml_export import msccl_xml_text
from syntony.synth.formats.msccl.xml_file import MscclError, read_msccl_xml
from syntony.synth.formats.mscclpp.export import mscclpp_text
from syntony.synth.formats.mscclpp.program import read_mscclpp
from syntony.synth.model.program import Program
from tests.synth.formats import plan_executor, xml_executor
from tests.synth.formats.test_msccl_xml import PAIR
from tests.synth.schedules import SCHEDULES

FOREIGN = Path(__file__).parents[4] / "shared" / "foreign"


def built(name: str, collective: str, ranks: int) -> Program:
    return _core.build(name, collective, ranks)


@cache
def xml_document(name: str) -> str:
    if name == "pair":
        return PAIR
    if name.startswith("own "):
        _, algorithm, collective, ranks = name.split()
        return msccl_xml_text(built(algorithm, collective, int(ranks)))
    path = FOREIGN / "msccl-xml" / f"{name}.xml"
    if not path.exists():
        pytest.skip("the foreign files are not beside this checkout")
    return path.read_text()


@cache
def plan_document(name: str) -> str:
    if name.startswith("own "):
        _, algorithm, collective, ranks, protocol = name.split()
        return mscclpp_text(built(algorithm, collective, int(ranks)), ExportOptions(protocol=protocol))
    path = FOREIGN / "mscclpp-plans" / f"{name}.json"
    if not path.exists():
        pytest.skip("the foreign files are not beside this checkout")
    return path.read_text()


XML = ("pair", "ncv4-ag_hier_4_LL", "ncv4-ar_tree_12_LL", "own ring all_reduce 3", "own direct all_to_all 3")
PLANS = (
    *("allreduce", "allreduce_packet", "allreduce_pipeline", "own ring all_reduce 3 Simple"),
    *("own ring all_reduce 3 LL", "own direct all_gather 3 Simple", "own two_shot all_reduce 3 LL"),
)
ALGORITHMS = ("ring all_gather", "chain all_reduce", "dgx1 all_gather", "ring all_reduce by dual")


# --- MSCCL XML --------------------------------------------------------------------------------------------------------


def change_xml(text: str, rng: random.Random) -> str:
    """One step less, twice, or elsewhere; one attribute of a step or block another."""
    algo = ElementTree.fromstring(text)
    blocks = [tb for gpu in algo for tb in gpu if tb.tag == "tb" and len(tb)]
    block = rng.choice(blocks)
    steps = list(block)
    at = rng.randrange(len(steps))
    match rng.choice(("drop", "again", "swap", "step", "step", "step", "block")):
        case "drop":
            block.remove(steps[at])
        case "again":
            block.insert(at, copy.deepcopy(steps[at]))
        case "swap":
            other = rng.randrange(len(steps))
            block[at], block[other] = steps[other], steps[at]
        case "block":
            block.set(rng.choice(("send", "recv", "chan")), str(rng.randrange(-1, 4)))
        case _:
            values = {
                "srcoff": range(4),
                "dstoff": range(4),
                "depid": range(-1, 4),
                "deps": range(-1, 4),
                "srcbuf": "ios",
                "dstbuf": "ios",
                "hasdep": (0, 1),
                "cnt": (1, 2),
                "type": ("s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop"),
            }
            key = rng.choice(list(values))
            steps[at].set(key, str(rng.choice(values[key])))
    for number, step in enumerate(block):
        step.set("s", str(number))
    return ElementTree.tostring(algo, encoding="unicode")


def try_xml(name: str, seed: int, count: int, folder: Path) -> Counter[str]:
    rng, tally = random.Random(f"{name} {seed}"), Counter[str]()
    for number in range(count):
        text = change_xml(xml_document(name), rng)
        (folder / "mutant.xml").write_text(text)
        try:
            program = read_msccl_xml(folder / "mutant.xml")
        except MscclError:
            tally["refused"] += 1
            continue
        except UserError:
            tally["malformed"] += 1
            continue
        verdict = check_program(program)
        tally["accepted" if verdict else "refused"] += 1
        for launch in range(8 if verdict else 0):
            try:
                xml_executor.run(text, program.fifo_depth, random.Random(launch))
            except xml_executor.WrongError as error:
                raise AssertionError(f"seed {seed}, mutant {number} of {name} was accepted, yet: {error}") from error
    return tally


# --- MSCCL++ plans ----------------------------------------------------------------------------------------------------


def change_plan(plan: dict[str, Any], rng: random.Random) -> None:
    """One operation less, twice, or elsewhere; one of its numbers another."""
    gpu = rng.choice(plan["gpus"])
    block = rng.choice([block for block in gpu["threadblocks"] if block["ops"]])
    ops = block["ops"][0]["ops"] if block["ops"][0]["name"] == "pipeline" else block["ops"]
    at = rng.randrange(len(ops))
    match rng.choice(("drop", "drop", "again", "swap", "number", "number", "number", "name", "wiring")):
        case "drop":
            del ops[at]
        case "again":
            ops.insert(at, copy.deepcopy(ops[at]))
        case "swap":
            other = rng.randrange(len(ops))
            ops[at], ops[other] = ops[other], ops[at]
        case "name":
            names = ("nop", "put", "copy", "re", "res", "rre", "rres", "signal", "wait", "rlxsignal", "rlxwait")
            ops[at]["name"] = rng.choice((*names, "ppkt", "upkt", "respkt", "repkt", "rppkt", "sem_acquire"))
        case "wiring":
            row = rng.choice([*gpu["channels"], *gpu["remote_buffers"], *block["channels"]] or [{}])
            for key in ("connected_to", "channel_ids"):
                if row.get(key):
                    row[key][rng.randrange(len(row[key]))] = rng.randrange(4)
            for key in ("rank", "type"):
                if key in row:
                    row[key] = rng.randrange(3) if key == "rank" else rng.choice("ios")
        case _:
            op = ops[at]
            pieces = [*op.get("src_buff", []), *op.get("dst_buff", [])]
            target = rng.choice([op, *pieces])
            keys = [key for key, value in target.items() if type(value) is int]
            if target is op and op.get("channel_ids"):
                op["channel_ids"] = [rng.randrange(3) for _ in op["channel_ids"]]
            elif target is op and op.get("semaphore_ids"):
                op["semaphore_ids"] = [rng.randrange(3) for _ in op["semaphore_ids"]]
            elif "type" in target and rng.random() < 0.3:
                target["type"] = rng.choice("ios")
            elif keys:
                target[rng.choice(keys)] = rng.randrange(4)


def try_plans(name: str, seed: int, count: int) -> Counter[str]:
    rng, tally = random.Random(f"{name} {seed}"), Counter[str]()
    for number in range(count):
        plan = json.loads(plan_document(name))
        change_plan(plan, rng)
        try:
            program = read_mscclpp(plan, name)
        except UserError as error:
            tally["malformed" if str(error).startswith(f"{name}: ") else "without a place"] += 1
            continue
        verdict = check_program(program)
        tally["accepted" if verdict else "refused"] += 1
        for launch in range(12 if verdict else 0):
            try:
                plan_executor.run(plan, random.Random(launch))
            except plan_executor.WrongError as error:
                raise AssertionError(f"seed {seed}, mutant {number} of {name} was accepted, yet: {error}") from error
    return tally


# --- .msccl.json ------------------------------------------------------------------------------------------------------


def change_algorithm(document: dict[str, Any], rng: random.Random) -> None:
    """One send less, elsewhere, in another step, or another round or link."""
    steps = document["steps"]
    step = rng.choice([step for step in steps if step["sends"]])
    at = rng.randrange(len(step["sends"]))
    ranks = document["collective"]["nodes"]
    match rng.choice(("drop", "move", "change", "change", "rounds", "link")):
        case "drop":
            del step["sends"][at]
        case "move":
            rng.choice(steps)["sends"].append(step["sends"].pop(at))
        case "change":
            column = rng.randrange(3)
            step["sends"][at][column] = rng.randrange(ranks)
        case "rounds":
            step["rounds"] = rng.randrange(3)
        case _:
            document["topology"]["links"][rng.randrange(ranks)][rng.randrange(ranks)] = rng.randrange(3)


def plays_right(document: dict[str, Any]) -> bool:
    """Whether the sends, step by step, end where the collective says, within the links' rounds."""
    cut, links = document["instance"]["chunks"], document["topology"]["links"]
    chunks = [
        (chunk["addr"] * cut + k, frozenset(chunk["pre"]), frozenset(chunk["post"]))
        for chunk in document["collective"]["chunks"]
        for k in range(cut)
    ]
    held: dict[tuple[int, int], frozenset[int]] = {}
    total: dict[int, frozenset[int]] = {}
    for address, pre, _ in chunks:
        total[address] = total.get(address, frozenset()) | pre
        for rank in pre:
            held[rank, address] = held.get((rank, address), frozenset()) | {rank}
    for step in document["steps"]:
        after, load = dict(held), Counter[tuple[int, int]]()
        for address, src, dst in {tuple(send) for send in step["sends"]}:
            load[src, dst] += 1
            if (src, address) not in held:
                return False
            after[dst, address] = after.get((dst, address), frozenset()) | held[src, address]
        if any(count > step["rounds"] * links[dst][src] for (src, dst), count in load.items()):
            return False
        held = after
    return all(held.get((rank, address)) == total[address] for address, _, post in chunks for rank in post)


def try_algorithms(name: str, seed: int, count: int) -> Counter[str]:
    rng, tally = random.Random(f"{name} {seed}"), Counter[str]()
    text = msccl_json_text(SCHEDULES[name]())
    for number in range(count):
        document = json.loads(text)
        change_algorithm(document, rng)
        try:
            schedule = read_msccl_json(document, name)
        except UserError as error:
            tally["malformed" if str(error).startswith(f"{name}: ") else "without a place"] += 1
            continue
        verdict = check_schedule(schedule)
        tally["accepted" if verdict else "refused"] += 1
        # What serves nobody is left out by the reader, so rounds may suffice where the document's do not.
        if verdict:
            kept = {(row.step, row.src, row.dst) for row in schedule.transfers.rows()}
            for at, step in enumerate(document["steps"]):
                step["sends"] = [send for send in step["sends"] if (at, send[1], send[2]) in kept]
            assert plays_right(document), f"seed {seed}, mutant {number} of {name} was accepted"
    return tally


# --- the tests --------------------------------------------------------------------------------------------------------


def test_the_originals_run_right(tmp_path: Path) -> None:
    for name in XML:
        (tmp_path / "original.xml").write_text(xml_document(name))
        xml_executor.run(xml_document(name), read_msccl_xml(tmp_path / "original.xml").fifo_depth, random.Random(name))
    for name in PLANS:
        assert check_program(read_mscclpp(json.loads(plan_document(name)), name))
        plan_executor.run(json.loads(plan_document(name)), random.Random(name))
    for name in ALGORITHMS:
        assert plays_right(json.loads(msccl_json_text(SCHEDULES[name]())))


def tried(kind: str, name: str, seed: int, count: int, folder: Path) -> Counter[str]:
    tries: dict[str, Callable[[], Counter[str]]] = {
        "xml": lambda: try_xml(name, seed, count, folder),
        "plan": lambda: try_plans(name, seed, count),
        "algorithm": lambda: try_algorithms(name, seed, count),
    }
    return tries[kind]()


CASES = [
    *(("xml", name) for name in XML),
    *(("plan", name) for name in PLANS),
    *(("algorithm", name) for name in ALGORITHMS),
]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_no_mutant_slips_through(kind: str, name: str, tmp_path: Path) -> None:
    tally = tried(kind, name, 0, 30, tmp_path)
    assert tally["refused"] + tally["malformed"] > 10, tally
    assert not tally["without a place"], tally


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 16))
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_ten_thousand_mutants(kind: str, name: str, seed: int, tmp_path: Path) -> None:
    tally = tried(kind, name, seed, 60, tmp_path)
    print(f"{kind} {name}: {dict(tally)}")
    assert not tally["without a place"], tally
    assert tally["refused"] + tally["malformed"] > 10, tally
