"""The handler of Syntony's page, as torch's debug server wants one. It may be sent to a process of the server's own."""

from __future__ import annotations

from typing import Any

from torch.distributed.debug._frontend import DebugHandler, NavLink, Route, fetch_all

from syntony.collectives.torch_backend.debug_page import ENDPOINT, told

_TEMPLATE = """
{% extends "base.html" %}
{% block header %}<h1>{% block title %}Syntony{% endblock %}</h1>{% endblock %}
{% block content %}<pre>{{ text }}</pre>{% endblock %}
"""


class SyntonyHandler(DebugHandler):
    """Asks every rank's worker server anew whenever somebody looks."""

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
