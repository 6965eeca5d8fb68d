"""``caffe.proto.caffe_pb2``: the messages and enums of Caffe's files, which are those of bpt's own schema.

They have Caffe's names and numbers, so that ``text_format`` and ``ParseFromString`` read what Caffe writes; and there
are those of forks and of bpt besides.
"""

from typing import Any

from bpt.config.proto import bpt_pb2


def __getattr__(name: str) -> Any:
    return getattr(bpt_pb2, name)


def __dir__() -> list[str]:
    return dir(bpt_pb2)
