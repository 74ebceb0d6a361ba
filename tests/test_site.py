"""The documentation as a site: every page is in its navigation, and the notebook says what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

from docs.run_notebook import NOTEBOOK, executed

ROOT = Path(__file__).resolve().parent.parent


def _navigation() -> list[str]:
    """Return the pages that the navigation lists, one in a line."""
    _, _, navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    return re.findall(r"([\w/.-]+\.md)$", navigation, re.MULTILINE)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = _navigation()
    assert len(listed) == len(set(listed))
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    # Made while the site is built: the changelog, the notebook, and the reference of each package.
    made = {page for page in listed if page.startswith("api/")} | {"changelog.md", "first-hour.md"}
    assert set(listed) == pages | made


def test_the_notebook_prints_what_it_shows(tmp_path: Path) -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    done = executed(notebook, tmp_path)
    assert [cell.get("outputs") for cell in done["cells"]] == [
        cell.get("outputs") for cell in notebook["cells"]
    ]
    assert sum(bool(cell.get("outputs")) for cell in notebook["cells"]) > 8
