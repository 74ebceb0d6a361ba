"""The project keeps its own promises: versions, locks, contracts, links, and set-up on a bare machine."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import weir

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = PYPROJECT["project"]

PUBLIC_NAMES = [
    "BooleanQuery",
    "BoostQuery",
    "CatchUpReport",
    "ChangeBatch",
    "ChangeFeed",
    "CompactReport",
    "Consistency",
    "Delete",
    "Description",
    "DropReport",
    "Engine",
    "ExistingIndex",
    "ExpireReport",
    "GarbageReport",
    "IndexDefinition",
    "IndexPolicy",
    "Insert",
    "MaintenanceReport",
    "MatchQuery",
    "MergeEngine",
    "MergePolicy",
    "MergeReport",
    "MultiMatchQuery",
    "Patch",
    "PhraseQuery",
    "RecoverReport",
    "RepairReport",
    "Scan",
    "Search",
    "ShardBy",
    "ShardReport",
    "SnapshotToken",
    "Source",
    "SqlQuery",
    "Table",
    "UpgradeReport",
    "UpkeepPolicy",
    "TableIndexes",
    "TableInspection",
    "TableMaintenance",
    "TableStatus",
    "TableTags",
    "TableWriter",
    "Tag",
    "Upsert",
    "VerifyReport",
    "WriteResult",
    "__version__",
    "adopt",
    "bounded",
    "bucket",
    "clone",
    "create",
    "day",
    "drop",
    "errors",
    "events",
    "expression",
    "hour",
    "identity",
    "month",
    "multi_bucket",
    "namespaces",
    "open",
    "sketches",
    "transforms",
    "truncate",
    "unsharded",
    "upgrade",
    "year",
]


def project_files() -> list[Path]:
    """Return the files that are, or would be, committed."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("needs a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path: Path) -> str | None:
    """Return the text of a file, None if it is binary."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


# --- The public surface and the version --------------------------------------------------------


def test_public_names_are_the_documented_ones() -> None:
    assert sorted(weir.__all__) == sorted(PUBLIC_NAMES)
    assert [name for name in PUBLIC_NAMES if not hasattr(weir, name)] == []


@pytest.mark.parametrize("read", ["scan", "get", "search", "search_text", "search_hybrid", "sql"])
def test_what_reads_have_in_common_comes_in_one_order(read: str) -> None:
    order = ["columns", "filter", "limit", "consistency", "at"]
    taken = [name for name in inspect.signature(getattr(weir.Table, read)).parameters if name in order]
    assert taken == [name for name in order if name in taken]


def test_one_version_everywhere() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+\S*)", changelog, re.MULTILINE)
    assert newest is not None
    assert PROJECT["version"] == newest[1] == weir.__version__


# --- Import contracts and dependencies ---------------------------------------------------------


def test_every_module_is_in_a_layer() -> None:
    layers = next(c for c in PYPROJECT["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    listed = {name for layer in layers["layers"] for name in re.findall(r"\w+", layer)}
    existing = {
        path.stem
        for path in (ROOT / "src/weir").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {"__init__"}
    assert layers["exhaustive"] is True
    assert existing - listed == set()


def third_party_imports() -> set[str]:
    """Return the top-level packages outside the standard library that the source imports."""
    names: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names - set(sys.stdlib_module_names) - {"weir"}


def test_dependencies_are_declared_and_used() -> None:
    required = {canonicalize_name(Requirement(text).name) for text in PROJECT["dependencies"]}
    optional = {
        canonicalize_name(Requirement(text).name)
        for extra in PROJECT["optional-dependencies"].values()
        for text in extra
    }
    providers = importlib.metadata.packages_distributions()
    imported = {
        name: {canonicalize_name(distribution) for distribution in providers.get(name, [name])}
        for name in third_party_imports()
    }
    undeclared = {name for name, known in imported.items() if not known & (required | optional)}
    assert undeclared == set()
    assert required - set().union(*imported.values()) == set()


# --- Locks -------------------------------------------------------------------------------------

LOCKS = ["build", "dev", "spark"]
PINNED = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?: ; (?P<marker>.+?))?(?: \\)?$", re.MULTILINE)


def pins(lock: str) -> Iterator[tuple[str, str]]:
    """Yield the name and version of what a lock installs here."""
    for match in PINNED.finditer((ROOT / f"requirements/{lock}.lock").read_text(encoding="utf-8")):
        if match["marker"] is None or Marker(match["marker"]).evaluate():
            yield match["name"], match["version"]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_is_hashed(lock: str) -> None:
    text = (ROOT / f"requirements/{lock}.lock").read_text(encoding="utf-8")
    requirements = re.sub(r" \\\n\s+", " ", text)
    lines = [line for line in requirements.splitlines() if line and not line.lstrip().startswith("#")]
    assert len(lines) > 3
    hashed = re.compile(r"[a-z0-9-]+==.* --hash=sha256:[0-9a-f]{64}")
    assert [line for line in lines if not hashed.match(line)] == []


@pytest.mark.parametrize(("lock", "extras"), [("dev", ["demo", "dev"]), ("spark", ["spark"])])
def test_lock_satisfies_what_the_project_asks_for(lock: str, extras: list[str]) -> None:
    locked = dict(pins(lock))
    wanted = [Requirement(text) for text in PROJECT["dependencies"]]
    wanted += [Requirement(text) for extra in extras for text in PROJECT["optional-dependencies"][extra]]
    unmet = [
        str(requirement)
        for requirement in wanted
        if not requirement.specifier.contains(locked.get(canonicalize_name(requirement.name), "0"))
    ]
    assert unmet == [], "run `make lock`"


def test_locks_agree() -> None:
    versions: dict[str, set[str]] = {}
    for lock in LOCKS:
        for name, version in pins(lock):
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_build_backend_is_locked() -> None:
    locked = dict(pins("build"))
    for text in PYPROJECT["build-system"]["requires"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)])


# --- What the files say ------------------------------------------------------------------------

# Written so that this file does not match itself. Examples may have a user called somebody.
REGISTRIES = re.compile(
    "|".join(
        rf"{name}[.]{domain}"
        for name, domain in [
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("anaconda", "org"),
            ("crates", "io"),
            ("registry[.]npmjs", "org"),
            ("maven[.]apache", "org"),
            ("deb[.]debian", "org"),
        ]
    )
)
MACHINE_PATHS = re.compile(r"(?<![\w.@~*-])(?<!:/)/(?:root|home|Users|work|opt|mnt|srv)/(?!somebody)\w")


def test_files_name_no_registry_and_no_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in project_files()
        if (text := text_of(path)) is not None
        for number, line in enumerate(text.splitlines(), start=1)
        if REGISTRIES.search(line) or MACHINE_PATHS.search(line)
    ]
    assert found == []


def without_code(markdown: str) -> str:
    """Return Markdown without its code, where brackets mean something else."""
    fenced = re.sub(r"^(```|~~~).*?^\1", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", fenced)


def anchors(markdown: str) -> set[str]:
    """Return the fragments that a page's headings can be linked by."""
    fenced = re.sub(r"^(```|~~~).*?^\1", "", markdown, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} +(.+?)\s*$", fenced, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_resolve(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", without_code(text)):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, fragment = target.partition("#")
        linked = page if not path else (page.parent / path).resolve()
        exists = linked.is_relative_to(ROOT) and linked.exists()
        if not exists or (fragment and fragment not in anchors(linked.read_text(encoding="utf-8"))):
            broken.append(target)
    assert broken == []


def test_index_lists_every_page() -> None:
    index = ROOT / "docs/index.md"
    linked = {
        (index.parent / target.partition("#")[0]).resolve()
        for target in re.findall(r"\]\(([^)\s]+)\)", index.read_text(encoding="utf-8"))
    }
    pages = {page for page in PAGES if page.is_relative_to(index.parent)}
    assert pages - linked - {index} == set()


# --- Set-up on a bare machine ------------------------------------------------------------------


class Machine:
    """A machine that has only the programs a test gives it."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.log = root / "calls"
        for name in ["bash", "dirname", "head", "mkdir", "sed", "tail"]:
            program = shutil.which(name)
            assert program is not None
            self.has(name, f'exec {program} "$@"')

    def has(self, name: str, script: str) -> None:
        """Add a program that records its call and runs the shell script."""
        program = self.bin / name
        shell = shutil.which("bash")
        program.write_text(f'#!{shell}\necho "{name} $*" >> {self.log}\n{script}\n', encoding="utf-8")
        program.chmod(0o755)

    def has_java(self, version: str) -> None:
        self.has("java", f"echo 'openjdk version \"{version}\" 2025-01-01' >&2")

    def is_used_by(self, user: int) -> None:
        self.has("id", f"echo {user}")
        # Without this, the script under test would make directories on the real machine.
        self.has("mkdir", "exit 0")

    def has_apt_with(self, package: str | None) -> None:
        """Add an apt-get that installs `package` as Java 17, or has nothing to install."""
        java = f'#!{shutil.which("bash")}\necho "openjdk version \\"17.0.15\\"" >&2'
        self.has(
            "apt-get",
            f"""
if [[ $* == *update* ]]; then exit 0; fi
if [[ $* == *" {package}" ]]; then
    echo '{java}' > {self.bin}/java && /bin/chmod +x {self.bin}/java
    exit 0
fi
echo "E: Unable to locate package ${{!#}}" >&2
exit 100""",
        )

    def run(self, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.bin / "bash"), str(ROOT / "tools" / script), *arguments],
            env={"PATH": str(self.bin), **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def calls(self, program: str) -> list[str]:
        lines = self.log.read_text(encoding="utf-8").splitlines() if self.log.exists() else []
        return [line for line in lines if line.partition(" ")[0] == program]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("version", ["17", "17.0.15", "21.0.1", "25-ea"])
def test_java_that_is_new_enough_is_left_alone(machine: Machine, version: str) -> None:
    machine.has_java(version)
    machine.is_used_by(0)
    machine.has_apt_with("openjdk-17-jre-headless")
    done = machine.run("ensure_java.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.calls("apt-get") == []


@pytest.mark.parametrize("version", [None, "1.8.0_442", "11.0.2"])
def test_java_is_installed_where_that_is_possible(machine: Machine, version: str | None) -> None:
    if version is not None:
        machine.has_java(version)
    machine.is_used_by(0)
    machine.has_apt_with("openjdk-17-jre-headless")
    done = machine.run("ensure_java.sh")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "java: installed"
    assert machine.calls("apt-get")[-1].endswith("install -y --no-install-recommends openjdk-17-jre-headless")


def test_newer_debian_gets_its_default_java(machine: Machine) -> None:
    machine.is_used_by(0)
    machine.has_apt_with("default-jre-headless")
    done = machine.run("ensure_java.sh")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "java: installed"


@pytest.mark.parametrize("case", ["not root", "no apt-get", "no package", "no network"])
def test_missing_java_is_explained_and_stops_nothing(machine: Machine, case: str) -> None:
    machine.is_used_by(1000 if case == "not root" else 0)
    if case == "no network":
        machine.has("apt-get", "echo 'E: no route to host' >&2; exit 100")
    elif case != "no apt-get":
        machine.has_apt_with("openjdk-17-jre-headless" if case == "not root" else None)
    done = machine.run("ensure_java.sh")
    assert done.returncode == 0
    assert "sudo apt-get install openjdk-17-jre-headless" in done.stderr
    assert bool(machine.calls("apt-get")) == (case in ("no package", "no network"))
    assert ("no route to host" in done.stderr) == (case == "no network")


def test_java_home_decides_like_it_does_for_spark(machine: Machine, tmp_path: Path) -> None:
    machine.has_java("17.0.15")
    machine.is_used_by(1000)
    done = machine.run("ensure_java.sh", JAVA_HOME=str(tmp_path / "old"))
    assert done.returncode == 0
    assert f"JAVA_HOME is {tmp_path / 'old'}" in done.stderr


def test_setup_takes_a_python_that_works(machine: Machine) -> None:
    machine.has("python3.11", "exit 127")
    machine.has("python3", f'exec {sys.executable} "$@"')
    done = machine.run("setup.sh", "--find-python")
    assert done.stdout.strip() == str(machine.bin / "python3")


def test_setup_prefers_the_python_it_is_told(machine: Machine) -> None:
    machine.has("python3.11", f'exec {sys.executable} "$@"')
    done = machine.run("setup.sh", "--find-python", PYTHON=sys.executable)
    assert done.stdout.strip() == sys.executable


def test_setup_says_which_python_is_missing(machine: Machine) -> None:
    machine.has("python3", '[[ $1 == --version ]] && echo "Python 3.9.2" || exit 1')
    done = machine.run("setup.sh", "--find-python")
    assert done.returncode == 1
    assert "Weir needs Python 3.11 or newer; found: Python 3.9.2." in done.stderr
    assert "apt-get install python3.11" in done.stderr


def test_scripts_can_be_run() -> None:
    scripts = [ROOT / ".ci/run", *(ROOT / "tools").glob("*.sh")]
    assert [script.name for script in scripts if not os.access(script, os.X_OK)] == []
