"""A browser without a window, driven by the DevTools protocol over two pipes: Chromium reads commands from its file
descriptor 3 and writes answers and events to 4, each JSON and a zero byte. So nothing listens on a port.

    with Browser() as browser:
        page = browser.open(path)
        page.run("syntony.set({t: 0.5})")
        page.screenshot("page.png")
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from syntony.base.command import UserError

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)
_PATIENCE = 60.0


def executable() -> str | None:
    """Chromium or Chrome, where one is on the path."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class BrowserError(UserError):
    """The browser did not start, did not answer, or an expression failed in it."""


class Browser:
    """A process with a profile of its own, which is removed with it. Raises BrowserError where there is none."""

    def __init__(self, width: int = 1400, height: int = 1000) -> None:
        program = executable()
        if program is None:
            raise BrowserError("no browser on the path: install Debian's package chromium")
        self._profile = tempfile.TemporaryDirectory(prefix="syntony-browser-", ignore_cleanup_errors=True)
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()

        def pipes() -> None:
            # Above 4 first, so that neither is overwritten before it is moved.
            high = [os.dup(commands), os.dup(answers)]
            high = [os.dup(one) if one < 5 else one for one in high]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [
                program,
                *_OPTIONS,
                f"--window-size={width},{height}",
                f"--user-data-dir={self._profile.name}",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=pipes,
            close_fds=False,
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in (self._out, self._in):
            os.close(end)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """One command's result. Events that come meanwhile are kept in `events`."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters} | (
            {"sessionId": session} if session else {}
        )
        content = json.dumps(asked).encode() + b"\0"
        while content:
            content = content[os.write(self._out, content) :]
        deadline = time.monotonic() + _PATIENCE
        while True:
            message = self._next(deadline, method)
            if message.get("id") == self._number:
                if "error" in message:
                    raise BrowserError(f"{method}: {message['error'].get('message')}")
                result: dict[str, Any] = message["result"]
                return result
            self.events.append(message)

    def _next(self, deadline: float, waiting: str) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            content = os.read(self._in, 1 << 20) if ready else b""
            if not content:
                raise BrowserError(f"the browser does not answer {waiting}")
            self._buffer += content
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, address: str | Path, dark: bool = False, width: int = 1400, height: int = 1000) -> Page:
        """A page of `syntony view`, drawn: a file, or an address such as `http://..`."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.call(f"{domain}.enable")
        # Without animated scrolling, so that what is looked for stays where it was found.
        wishes = {"prefers-color-scheme": "dark" if dark else "light", "prefers-reduced-motion": "reduce"}
        media = [{"name": name, "value": value} for name, value in wishes.items()]
        page.call("Emulation.setEmulatedMedia", features=media)
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        text = str(address)
        page.call("Page.navigate", url=text if "://" in text else Path(text).resolve().as_uri())
        page.wait("document.documentElement?.dataset.ready === 'yes'")
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser, self._session, self._target = browser, session, target

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def run(self, expression: str) -> Any:
        """The value of an expression, awaited if it is a promise."""
        found = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            told = found["exceptionDetails"]
            raise BrowserError(f"{expression}: {told.get('exception', {}).get('description', told['text'])}")
        return found["result"].get("value")

    def wait(self, condition: str, patience: float = 30.0) -> None:
        """Until the expression is true."""
        deadline = time.monotonic() + patience
        while not self.run(condition):
            if time.monotonic() > deadline:
                raise BrowserError(f"not within {patience:g} s: {condition}; {self.complaints()}")
            self.run("new Promise((resolve) => setTimeout(resolve, 20))")

    def settle(self) -> None:
        """Until what was changed is drawn."""
        self.run(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))"
        )

    def _events(self, kinds: Callable[[str], bool]) -> list[dict[str, Any]]:
        mine = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event for event in mine if kinds(event["method"])]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions that nobody caught."""
        told = []
        for event in self._events(
            lambda kind: kind in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        ):
            about = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                thrown = about["exceptionDetails"]
                told.append(str(thrown.get("exception", {}).get("description", thrown["text"])))
            elif event["method"] == "Log.entryAdded":
                if about["entry"]["level"] in ("error", "warning"):
                    told.append(about["entry"]["text"])
            elif about["type"] in ("error", "warning", "assert"):
                told.append(" ".join(str(one.get("value", one.get("description"))) for one in about["args"]))
        return told

    def requests(self) -> list[str]:
        """Addresses that the page asked for, its own first; what it carries in `data:` and `blob:` is no request."""
        asked = [
            event["params"]["request"]["url"]
            for event in self._events(lambda kind: kind == "Network.requestWillBeSent")
        ]
        return [url for url in asked if not url.startswith(("data:", "blob:"))]

    def screenshot(self, path: str | Path, whole: bool = False) -> None:
        """A PNG of what is in sight, or of the whole page."""
        self.settle()
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(taken["data"]))

    def click(self, selector: str) -> None:
        """A real click in the middle of the first element that the selector finds."""
        place = self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)}); "
            "one.scrollIntoView({block: 'center', behavior: 'instant'}); "
            "const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        self.settle()

    def press(self, key: str) -> None:
        """A key."""
        text = {"text": key} if len(key) == 1 else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)
