"""``caffe.proto.caffe_pb2``: the messages and enums of bpt's own schema, under pycaffe's module name.

They have Caffe's names and numbers, so ``text_format`` and ``ParseFromString`` read what Caffe writes. The schema also
has the messages of forks of Caffe and of bpt itself.
"""

from typing import Any

from bpt.config.proto import bpt_pb2


def __getattr__(name: str) -> Any:
    return getattr(bpt_pb2, name)


def __dir__() -> list[str]:
    return dir(bpt_pb2)
