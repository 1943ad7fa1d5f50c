"""The site of the documentation: every page is in its navigation; where its generator is installed, it builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GENERATED = {"index.md", "help.md", "api.md", "architecture.md", "glossary.md", "changes.md"}


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r"^ +- .*: (\S+\.(?:md|ipynb))$", text[text.index("nav:") :], re.MULTILINE)
    assert len(named) == len(set(named))
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*") if page.suffix in (".md", ".ipynb")}
    assert set(named) == pages | GENERATED


@pytest.mark.sweep
def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    if find_spec("mkdocs") is None or find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs is not installed (make docs)")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr.strip()) == (0, "")
    pages = list((tmp_path / "site").rglob("index.html"))
    for page in pages:
        for target in re.findall(r'(?:href|src)="([^"#]+)', page.read_text()):
            if "://" not in target and not target.startswith(("mailto:", "data:", "/")):
                assert (page.parent / target).exists(), f"{page.relative_to(tmp_path)} links to {target}"
