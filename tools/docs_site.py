"""What mkdocs is told about this repository: pages it does not find in docs/, and links that leave docs/.

Called by mkdocs while it builds the site; see mkdocs.yml.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src/weir"
API = {
    "api/weir.md": ("Classes and functions", "weir"),
    "api/events.md": ("Events", "weir.events"),
    "api/namespaces.md": ("Namespaces", "weir.namespaces"),
    "api/spark.md": ("Spark", "weir.spark"),
}
PAGES_ELSEWHERE = {"CHANGELOG.md": "changelog.md", "docs/first-hour.ipynb": "first-hour.md"}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)[ \t]*$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the reference of each package, and the pages that are kept outside docs/."""
    for page, (title, package) in API.items():
        files.append(File.generated(config, page, content=_reference(title, package)))
    for path, page in PAGES_ELSEWHERE.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        content = _notebook(json.loads(text)) if path.endswith(".ipynb") else text
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Make text of links to what is not part of the site: sources, tests, and files of the repository."""
    here = posixpath.dirname(page.file.src_uri)

    def resolved(found: re.Match[str]) -> str:
        image, text, target = found.groups()
        path, _, anchor = target.partition("#")
        if image or not path or re.match(r"[a-z]+:", path):
            return found[0]
        inside = posixpath.normpath(posixpath.join("docs", here, path))
        if page.file.src_uri == PAGES_ELSEWHERE["CHANGELOG.md"]:
            inside = posixpath.normpath(path)
        if inside in PAGES_ELSEWHERE:
            place = posixpath.relpath(PAGES_ELSEWHERE[inside], here or ".")
        elif inside.startswith("docs/") and files.get_file_from_path(inside.removeprefix("docs/")):
            place = posixpath.relpath(inside.removeprefix("docs/"), here or ".")
        elif (ROOT / inside).exists():
            return text
        else:
            return found[0]
        return f"[{text}]({place}{f'#{anchor}' if anchor else ''})"

    parts, end = [], 0
    for block in CODE.finditer(markdown):
        parts += [LINK.sub(resolved, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, LINK.sub(resolved, markdown[end:])])


def _notebook(notebook: dict[str, Any]) -> str:
    """Return a notebook as a page: its cells, and below each what it prints."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            text = output.get("text") or output["data"]["text/plain"]
            parts.append(f"```text\n{''.join(text).rstrip()}\n```")
    return "\n\n".join(parts)


def _reference(title: str, package: str) -> str:
    places = sorted(_public(package), key=lambda place: place.rpartition(".")[2].lower())
    return "\n".join([f"# {title}\n", *(f"::: {place}\n" for place in places)])


def _public(package: str) -> list[str]:
    """Return where the public names of a package are defined, read from its imports."""
    tree = ast.parse((SOURCE.parent / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    names = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    return [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weir")
        for alias in node.names
        if (alias.asname or alias.name) in names
    ]
