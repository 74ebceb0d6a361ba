"""The checked-in protobuf code is what its definition generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weir.format import proto

SOURCE = Path(proto.__path__[0])
ROOT = SOURCE.parents[2]


@pytest.mark.parametrize("suffix", ["_pb2.py", "_pb2.pyi"])
@pytest.mark.parametrize("definition", sorted(SOURCE.glob("*.proto")), ids=lambda path: path.stem)
def test_generated_code_is_current(tmp_path: Path, definition: Path, suffix: str) -> None:
    name = definition.stem + suffix
    definition = definition.relative_to(ROOT)
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"-I{ROOT}",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
    ]
    subprocess.run([*command, str(definition)], check=True)
    generated = (tmp_path / definition).with_name(name)
    assert generated.read_text() == (SOURCE / name).read_text(), "make proto"
