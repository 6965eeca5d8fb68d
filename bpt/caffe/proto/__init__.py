"""``caffe.proto``: the messages of Caffe's files."""

from bpt.caffe.proto import caffe_pb2

__all__ = ["caffe_pb2"]
