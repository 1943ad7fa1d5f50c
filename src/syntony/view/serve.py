"""`syntony view --serve`: serves the page on a local port; it reloads when one of its files changes."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from syntony.base.command import UserError
from syntony.view.kinds import Options, views
from syntony.view.makers.fault import unreadable
from syntony.view.page import page


def stamp(names: Sequence[str]) -> str:
    """Changes when a file does or, for a folder, when a file in it does."""
    paths = [
        path
        for name in names
        if Path(name).exists()
        for path in (Path(name), *(Path(name).iterdir() if Path(name).is_dir() else ()))
    ]
    found = []
    for path in paths:
        try:
            about = path.stat()
        except FileNotFoundError:
            continue  # a dump that is being renamed
        found.append(f"{path.name}:{about.st_mtime_ns}:{about.st_size}")
    return " ".join(found)


def current(names: Sequence[str], options: Options) -> str:
    """The page of the files as they are now; a partially written file is shown as it is."""
    try:
        found = views(names, options)
    except UserError as error:
        found = [unreadable(names[0], str(error))]
    return page(found, watched="changed")


def server(names: Sequence[str], options: Options, port: int) -> ThreadingHTTPServer:
    """Listens on 127.0.0.1 only. Raises UserError if the port is taken."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers: dict[str, tuple[str, Callable[[], str]]] = {
                "/": ("text/html", lambda: current(names, options)),
                "/changed": ("text/plain", lambda: stamp(names)),
            }
            if self.path not in answers:
                self.send_error(404)
                return
            kind, make = answers[self.path]
            content = make().encode()
            self.send_response(200)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Logs nothing: the page polls every second."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise UserError(f"--serve {port}: {error.strerror}") from None


def serve(names: Sequence[str], options: Options, port: int, show: bool) -> int:
    """Serves until Ctrl-C."""
    views(names, options)  # reports errors now
    with server(names, options, port) as listening:
        address = f"http://127.0.0.1:{listening.server_address[1]}/"
        print(f"serving {', '.join(names)} on {address} (Ctrl-C ends it)", flush=True)
        if show:
            webbrowser.open(address)
        listening.serve_forever()
    return 0
