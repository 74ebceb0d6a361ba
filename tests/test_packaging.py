"""What is published: built, installed away from the checkout, and used."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
BUILD = "import hatchling.build, sys; print(getattr(hatchling.build, sys.argv[1])(sys.argv[2]))"

TEN_LINES = """
import pyarrow as pa, weir, weir.transforms
schema = pa.schema([("id", pa.int64()), ("carrier", pa.string()), ("delay", pa.int32())])
table = weir.create("flights", schema, primary_key="id", shard_by=weir.transforms.bucket("id", 4))
with table.writer() as writer:
    writer.upsert([{"id": 1, "carrier": "UA", "delay": 12}, {"id": 2, "carrier": "AA", "delay": 75}])
    writer.delete([1])
    print(table.scan(filter="delay > 60").to_pylist())
print(weir.__file__)
"""


def only_what_is_declared(into: Path) -> Path:
    """Return a directory with what installing the package brings besides itself, and nothing else."""
    into.mkdir()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = list(project["dependencies"])
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = Requirement(waiting.pop())
        for extra in ("", *wanted.extras):
            if (wanted.name.lower(), extra) in seen:
                continue
            seen.add((wanted.name.lower(), extra))
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": extra}):
                continue
            found = distribution(wanted.name)
            for file in found.files or ():
                link = into / file.parts[0]
                if file.parts[0] != ".." and not link.exists():
                    link.symlink_to(Path(str(found.locate_file(file.parts[0]))))
            for text in found.requires or ():
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                    waiting.append(
                        f"{needed.name}[{','.join(needed.extras)}]" if needed.extras else needed.name
                    )
    return into


def run(*arguments: str | Path, cwd: Path, path: str = "") -> str:
    """Run Python without the environment's own sites: only what ``path`` names can be imported."""
    done = subprocess.run(
        [sys.executable, "-S", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_what_is_published_works_away_from_the_checkout(kind: str, tmp_path: Path) -> None:
    site = sysconfig.get_path("purelib")
    built = tmp_path / "built"
    built.mkdir()
    name = run("-c", BUILD, f"build_{kind}", built, cwd=ROOT, path=site).split()[-1]
    assert name.startswith("weir_lance-")
    source = built / name
    if kind == "sdist":
        with tarfile.open(source) as archive:
            archive.extractall(tmp_path, filter="data")
        source = tmp_path / name.removesuffix(".tar.gz")
    installed = tmp_path / "installed"
    run(
        *("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"),
        *("--disable-pip-version-check", "--target", installed, source),
        cwd=tmp_path,
        path=site,
    )
    # The package is what was built; of what the tests have there is what it declares, and nothing else.
    alone = only_what_is_declared(tmp_path / "alone")
    assert not (alone / "pandas").exists()
    path = os.pathsep.join([str(installed), str(alone)])
    *shown, place = run("-c", TEN_LINES, cwd=tmp_path, path=path).splitlines()
    assert shown == ["[{'id': 2, 'carrier': 'AA', 'delay': 75}]"]
    assert Path(place).is_relative_to(installed)
    assert "Usage" in run("-m", "weir", "--help", cwd=tmp_path, path=path)
    assert (installed / "bin" / "weir").exists()
    told = run(
        "-c", "from importlib.metadata import version; print(version('weir-lance'))", cwd=tmp_path, path=path
    )
    assert told.strip() == run("-c", "import weir; print(weir.__version__)", cwd=tmp_path, path=path).strip()


def test_what_is_installed_alone_pulls_no_servers_and_no_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "weir-lance"
    for package in ("pyspark", "pandas", "polars", "uvicorn", "starlette", "flask"):
        assert not any(one.startswith(package) for one in project["dependencies"]), package
