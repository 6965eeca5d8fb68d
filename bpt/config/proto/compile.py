"""A compiler of the schemas: run ``python -m bpt.config.proto.compile`` (``make proto``) after a change of one.

It writes two files next to each schema, such as ``bpt.config.proto``, both of which are committed:

``bpt.desc``
    The compiled schema as a serialised ``FileDescriptorSet``, which ``bpt_pb2.py`` loads.
``bpt_pb2.pyi``
    The types of the messages, for mypy and for editors.

The ``bpt_pb2.py`` that protoc generates is not used. Such a module refuses to run with a protobuf runtime older than
the compiler that wrote it, and is only guaranteed to work with one later major version. A descriptor is plain data in a
stable format: one ``bpt.desc`` serves all protobufs from 4.21 on.

The compiler is that of the development dependency ``grpcio-tools``, so no protoc has to be installed.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import resources
from pathlib import Path

from grpc_tools import protoc

from bpt.base.version import PACKAGE

FOLDER = PACKAGE.parent  # the folder to which names of schemas are relative
SCHEMAS = ("bpt/config/proto/bpt.proto", "bpt/perf/trace/perfetto_trace.proto")

# The stub is protoc's own, down to its long lines, bare generics, and a field that is called "lambda".
_STUB_HEADER = b"""# Written by `python -m bpt.config.proto.compile`; do not edit.
# ruff: noqa
# mypy: disable-error-code="type-arg,no-untyped-def"
"""


def compile_schema(schema: str, folder: Path = FOLDER) -> dict[Path, bytes]:
    """Compile ``folder``/``schema``; return the content of each generated file by its path.

    The schema is registered under the name ``schema``.

    Raises:
        RuntimeError: it does not compile; protoc has then printed the reason.
    """
    descriptor = Path(schema).with_suffix(".desc")
    stub = descriptor.with_name(f"{descriptor.stem}_pb2.pyi")
    with tempfile.TemporaryDirectory() as temporary:
        out = Path(temporary)
        arguments = [
            "protoc",
            f"--proto_path={folder}",
            f"--proto_path={resources.files('grpc_tools') / '_proto'}",
            f"--descriptor_set_out={out / descriptor.name}",
            f"--pyi_out={out}",
            schema,
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"{folder / schema} does not compile")
        return {
            folder / descriptor: (out / descriptor.name).read_bytes(),
            folder / stub: _STUB_HEADER + (out / stub).read_bytes(),
        }


def main() -> int:
    """Write the generated files next to their schema; return the exit status."""
    for schema in SCHEMAS:
        for path, content in compile_schema(schema).items():
            path.write_bytes(content)
            print(f"{path}: {len(content)} bytes", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
