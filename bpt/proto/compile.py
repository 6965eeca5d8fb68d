"""Compiles the schema: run ``python -m bpt.proto.compile`` (``make proto``) when ``bpt.proto`` has changed.

Writes two files next to the schema, both of which are committed:

``bpt.desc``
    The compiled schema as a serialised ``FileDescriptorSet``, which ``bpt_pb2.py`` loads.
``bpt_pb2.pyi``
    The types of the messages, for mypy and for editors.

Why not the ``bpt_pb2.py`` that protoc generates? Because such a module refuses to run with a protobuf runtime
older than the compiler that wrote it, and is promised to work with one major version after it only. A
descriptor is plain data in a format that does not change: one ``bpt.desc`` serves all protobufs from 4.21 on.

The compiler is that of the development dependency ``grpcio-tools``, so that no protoc need be installed.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

FOLDER = Path(__file__).resolve().parent
PROTO_NAME = "bpt/proto/bpt.proto"
DESCRIPTOR_NAME = "bpt.desc"
STUB_NAME = "bpt_pb2.pyi"

# The stub is protoc's own, down to its long lines and bare generics.
_STUB_HEADER = b"""# Written by `python -m bpt.proto.compile`; do not edit.
# ruff: noqa
# mypy: disable-error-code="type-arg"
"""


def compile_schema(folder: Path) -> dict[str, bytes]:
    """Compiles ``folder``/bpt.proto and returns the content of each generated file by its name.

    ``folder`` must be the ``bpt/proto`` of a source tree or of an installed package: the schema is registered
    under the name ``bpt/proto/bpt.proto``, which is searched from the folder two levels up.
    Raises RuntimeError if the schema does not compile; protoc has then printed why.
    """
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        arguments = [
            "protoc",
            f"--proto_path={folder.parent.parent}",
            f"--proto_path={resources.files('grpc_tools') / '_proto'}",
            f"--descriptor_set_out={out / DESCRIPTOR_NAME}",
            f"--pyi_out={out}",
            PROTO_NAME,
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"{folder / 'bpt.proto'} does not compile")
        return {
            DESCRIPTOR_NAME: (out / DESCRIPTOR_NAME).read_bytes(),
            STUB_NAME: _STUB_HEADER + (out / "bpt" / "proto" / STUB_NAME).read_bytes(),
        }


def main() -> int:
    """Writes the generated files next to the schema. Returns the exit status."""
    for name, content in compile_schema(FOLDER).items():
        (FOLDER / name).write_bytes(content)
        print(f"{FOLDER / name}: {len(content)} bytes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
