"""Syntony's page in torch's debug server. The handler may be pickled and sent to a separate server process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._C import _distributed_c10d as c10d
from torch.distributed.debug._frontend import DebugHandler, NavLink, Route, fetch_all

from syntony.collectives.torch_backend.debug_page import records, told

ENDPOINT = "syntony"
_TEMPLATE = """
{% extends "base.html" %}
{% block header %}<h1>{% block title %}Syntony{% endblock %}</h1>{% endblock %}
{% block content %}<pre>{{ text }}</pre>{% endblock %}
"""


class SyntonyHandler(DebugHandler):
    """Queries every rank's worker server at each page view."""

    def routes(self) -> list[Route]:
        return [Route("/syntony", self._page)]

    def nav_links(self) -> list[NavLink]:
        return [NavLink("/syntony", "Syntony")]

    def templates(self) -> dict[str, str]:
        return {"syntony.html": _TEMPLATE}

    def _page(self, request: Any) -> bytes:
        found: bytes = request.frontend.render_template("syntony.html", text=self.dump())
        return found

    def dump(self) -> str:
        _, answers = fetch_all(ENDPOINT, timeout=self.fetch_timeout)
        return told((answer.status_code, answer.text) for answer in answers)

    def dump_filename(self) -> str:
        return "syntony"


def debug_handlers() -> list[DebugHandler]:
    """The pages of torch's debug server and, last, Syntony's. Call it on every rank and pass the result:

        torch.distributed.debug.start_debug_server(handlers=syntony.debug_handlers())

    ImportError if torch has no debug server that takes handlers, or lacks what it needs (tabulate).
    """
    from torch.distributed.debug._debug_handlers import default_handlers

    register: Callable[[str, Callable[[Any, Any], None]], None] = c10d._register_handler
    register(ENDPOINT, _answer)
    return [*default_handlers(), SyntonyHandler()]


def _answer(_: Any, response: Any) -> None:
    """A rank's response: its flight records, in the same form as in files."""
    response.set_content(records(), "application/json")
    response.set_status(200)
