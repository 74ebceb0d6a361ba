"""The checked-in protobuf code is what its definition generates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weir.format import proto

SOURCE = Path(proto.__path__[0])
ROOT = SOURCE.parents[2]


@pytest.mark.parametrize("name", ["memwal_pb2.py", "memwal_pb2.pyi"])
def test_generated_code_is_current(tmp_path: Path, name: str) -> None:
    definition = SOURCE.relative_to(ROOT) / "memwal.proto"
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
    assert generated.read_text() == (SOURCE / name).read_text(), (
        "python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/weir/format/proto/memwal.proto"
    )
