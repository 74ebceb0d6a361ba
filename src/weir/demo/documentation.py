"""Real texts with vectors: docstrings of installed packages, with latent semantic analysis."""

from __future__ import annotations

import ast
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["Text", "documentation_strings", "vectors_of", "words_of"]

Vectors = npt.NDArray[np.float32]

_LEAST, _MOST = 60, 4_000
_MOST_BYTES = 400_000
_WORD = re.compile(r"[a-z]{3,30}")
_VOCABULARY = 1_500


@dataclass(frozen=True, slots=True)
class Text:
    """A documentation string.

    Parameters
    ----------
    name : str
        Its subject.
    package : str
        The package that has it.
    text : str
        The string.
    """

    name: str
    package: str
    text: str


def documentation_strings(most: int) -> list[Text]:
    """Return the documentation strings of the installed packages, each once, in the order of the files."""
    found: list[Text] = []
    seen: set[str] = set()
    for package, path in _sources():
        for name, text in _of_file(path):
            if _LEAST <= len(text) <= _MOST and text not in seen and "\0" not in text:
                seen.add(text)
                found.append(Text(name, package, text))
                if len(found) == most:
                    return found
    return found


def _sources() -> Iterator[tuple[str, Path]]:
    """Yield the Python files of installed packages, then those of the standard library."""
    places = dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib"))
    for place in places:
        for path in sorted(place.rglob("*.py")):
            parts = path.relative_to(place).parts
            inner = "site-packages" in parts or "test" in parts or "tests" in parts
            if not inner and path.stat().st_size <= _MOST_BYTES:
                yield parts[0].removesuffix(".py"), path


def _of_file(path: Path) -> Iterator[tuple[str, str]]:
    content = path.read_bytes()
    if content.count(b'"""') < 2:
        return
    try:
        with warnings.catch_warnings():
            # Errors in other packages' files do not concern the demo.
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    left: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    # Modules, and the definitions in them and in their classes: the rest of a tree is most of it.
    while left:
        node = left.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            left += [
                one
                for one in reversed(node.body)
                if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            ]
        text = ast.get_docstring(node)
        if text is not None and _is_unicode(text):
            yield getattr(node, "name", path.stem), text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text.lower())


def vectors_of(texts: Sequence[str], dimensions: int, seed: int = 0) -> Vectors:
    """Return a vector of length 1 for each text: TF-IDF, and of that the strongest directions.

    Parameters
    ----------
    texts : sequence of str
        The texts.
    dimensions : int
        How many directions.
    seed : int
        Where the search for them begins.
    """
    counted = [Counter(words_of(text)) for text in texts]
    documents = Counter(word for one in counted for word in one)
    common = [word for word, _ in documents.most_common(_VOCABULARY)]
    place = {word: at for at, word in enumerate(common)}
    weights = np.zeros((len(texts), len(common)), dtype=np.float32)
    for row, one in enumerate(counted):
        for word, times in one.items():
            at = place.get(word)
            if at is not None:
                weights[row, at] = (1 + np.log(times)) * np.log(len(texts) / documents[word] + 1)
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    weights /= np.where(norms == 0, 1, norms)
    # The strongest directions of the words, by a few steps of a random start (subspace iteration).
    basis = np.random.default_rng(seed).standard_normal((len(common), dimensions)).astype(np.float32)
    for _ in range(3):
        basis, _ = np.linalg.qr(weights.T @ (weights @ basis))
    vectors: Vectors = (weights @ basis).astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    # A text without any of the words has no direction of its own.
    vectors[lengths[:, 0] < 1e-6, 0] = 1.0
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    normed: Vectors = (vectors / lengths).astype(np.float32)
    return normed
