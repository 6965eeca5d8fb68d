"""The messages and enums of ``bpt.config.proto`` as classes, made when this module is first imported.

It reads the compiled schema ``bpt.desc``, adds it to protobuf's default descriptor pool and exposes the names of a
generated module: every top-level message class, every top-level enum and its values (``TRAIN``, ``TEST``), and
``DESCRIPTOR``. Nested enums and messages are attributes of their message class, as in ``ConvolutionParameter.CUDNN``.
``bpt_pb2.pyi`` has the types for mypy.

:mod:`bpt.config.proto.compile`, which writes the other two files, explains why this module is written by hand.
"""

from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool

# Internal, but every module that protoc has written since 3.20 imports it, so it will remain.
from google.protobuf.internal import builder

_FILES = descriptor_pb2.FileDescriptorSet.FromString(Path(__file__).with_name("bpt.desc").read_bytes())

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(_FILES.file[0].SerializeToString())

builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
