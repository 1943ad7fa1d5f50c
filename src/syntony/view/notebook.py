"""Pages in notebooks: an isolated frame with a self-contained page, which needs no network."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Sequence
from pathlib import Path

from syntony.overlap.step.plan import Plan
from syntony.synth.model.schedule import Schedule
from syntony.topologies.topology import Topology
from syntony.view.kinds import Options, shown, views
from syntony.view.makers import network, step
from syntony.view.models import View
from syntony.view.page import page

_HEIGHT = 760  # pixels of the frame


class Shown:
    """The result of `show`: a page that a notebook displays."""

    def __init__(self, found: Sequence[View]) -> None:
        self.views = tuple(found)

    def _repr_html_(self) -> str:
        return _frame(self.views)

    def __repr__(self) -> str:
        return "\n".join(f"{view.kind}: {view.title}: {view.headline}" for view in self.views)


def show(*files: str | Path, size: int = 1 << 26, topology: str | None = None, machine: str = "cpu") -> Shown:
    """Shows files like `syntony view`, in a notebook: bench results, schedules, records .. Raises UserError."""
    return Shown(views([str(file) for file in files], Options(size, topology, machine)))


def html_of(value: object) -> str:
    """The frame for a Topology, a Schedule (proven first) or a Plan."""
    match value:
        case Topology():
            return _frame([network.view(value, value.name)])
        case Schedule():
            return _frame([shown(value, value.engine or "schedule", Options())])
        case Plan():
            with tempfile.TemporaryDirectory() as folder:  # a plan's costs are computed when its file is read
                path = Path(folder) / "plan.json"
                value.write(path)
                return _frame([step.view([str(path)], "cpu")])
    raise TypeError(f"a notebook shows topologies, schedules and plans, not {type(value).__name__}")


def _frame(found: Sequence[View]) -> str:
    title = html.escape(", ".join(view.title for view in found), quote=True)
    return (
        f'<iframe title="{title}" srcdoc="{html.escape(page(found), quote=True)}" sandbox="allow-scripts" '
        f'style="width:100%;height:{_HEIGHT}px;border:1px solid #d0d7de;border-radius:8px"></iframe>'
    )
