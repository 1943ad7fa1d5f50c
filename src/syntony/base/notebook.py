"""How notebooks display our values: the page of `syntony view`, in a frame.

The package that makes pages depends on all packages whose values it shows. So `syntony/__init__.py`, which knows them
all, passes its function down.
"""

from __future__ import annotations

from collections.abc import Callable


def _plain(value: object) -> str:
    raise NotImplementedError(f"no function is registered that shows a {type(value).__name__}")


_page_maker: Callable[[object], str] = _plain


def show_with(page_maker: Callable[[object], str]) -> None:
    """From now on, `page_maker` makes the HTML of every value."""
    global _page_maker
    _page_maker = page_maker


def html_of(value: object) -> str:
    """The HTML of a Topology, a Schedule or a Plan, for `_repr_html_`."""
    return _page_maker(value)
