"""The messages of ``perfetto_trace.proto`` as classes, made at the first import; see bpt.config.proto.compile."""

from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import builder

_FILES = descriptor_pb2.FileDescriptorSet.FromString(Path(__file__).with_name("perfetto_trace.desc").read_bytes())

DESCRIPTOR = descriptor_pool.Default().AddSerializedFile(_FILES.file[0].SerializeToString())

builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
