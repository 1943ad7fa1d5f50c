"""Imports go one way: read from the sources, whole, also those inside functions and for type checkers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import networkx
import pytest

SOURCE = Path(__file__).parents[2] / "src"
ROOMS = ("base", "topologies", "synth", "collectives", "overlap", "trainer", "lab", "view", "benchmarks")
"""From the ground up: a room imports only what stands before it. The front door (`syntony` itself) imports all."""
SYNTH = (
    "model", "symmetry", "bounds", "checker", "lowering", "simulation", "traffic", "congestion", "engines", "placement",
    "formats", "nccl", "dsl", "commands",
)  # fmt: skip
"""The same within synth."""

MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((SOURCE / "syntony").rglob("*.py"))
}


def imported(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, in any of its statements."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                if module in MODULES:
                    yield module
                elif node.module in MODULES and not alias.name.startswith("_"):  # syntony._core is no module of MODULES
                    yield node.module


@pytest.fixture(scope="module")
def imports() -> networkx.DiGraph:
    """An edge from each module to each that it imports."""
    return networkx.DiGraph(
        (module, other) for module, path in MODULES.items() for other in imported(path) if other != module
    )


def test_no_circle(imports: networkx.DiGraph) -> None:
    circles = [sorted(circle) for circle in networkx.strongly_connected_components(imports) if len(circle) > 1]
    assert circles == []


@pytest.mark.parametrize(("depth", "order"), [(1, ROOMS), (2, SYNTH)], ids=["rooms", "within synth"])
def test_imports_go_one_way(imports: networkx.DiGraph, depth: int, order: tuple[str, ...]) -> None:
    def room(module: str) -> str:
        parts = module.split(".")
        return parts[depth] if len(parts) > depth and (depth == 1 or parts[1] == "synth") else ""

    upward = [
        f"{module} imports {other}"
        for module, other in imports.edges
        if room(module) in order and room(other) in order and order.index(room(other)) > order.index(room(module))
    ]
    assert upward == []
    found = {room(module) for module in MODULES if MODULES[module].parent.name != "syntony"}
    assert {name for name in found if name} == set(order)


def test_the_front_door_is_above_all_rooms(imports: networkx.DiGraph) -> None:
    """What rooms take from the package itself are its compiled modules. The demo alone runs commands."""
    doors = {module for module in MODULES if module.count(".") < 2 and MODULES[module].parent.name == "syntony"}
    inside = {*doors, "syntony.benchmarks.demo.story"}
    assert [module for module, other in imports.edges if other in doors and module not in inside] == []


def test_the_checker_shares_no_code(imports: networkx.DiGraph) -> None:
    """What it has for itself nobody else takes, and it resolves references and reads collectives by itself."""
    checker = "syntony.synth.checker"
    known = {checker, f"{checker}.proofs"}
    takers = {
        (module, other)
        for module, other in imports.edges
        if other.startswith(checker) and other not in known and not module.startswith(checker)
    }
    assert takers == set()
    for module, other in imports.edges:
        if module.startswith(checker):
            assert other not in ("syntony.synth.model.references", "syntony.synth.model.blocks"), module
