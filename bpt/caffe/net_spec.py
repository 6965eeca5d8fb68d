"""``caffe.net_spec``: networks written in Python."""

from bpt.caffe.netspec import Function, NetSpec, Top, to_proto
from bpt.caffe.netspec import L as layers  # noqa: N811  pycaffe's names
from bpt.caffe.netspec import P as params  # noqa: N811
from bpt.caffe.netspec.layers import Layers, Parameters

__all__ = ["Function", "Layers", "NetSpec", "Parameters", "Top", "layers", "params", "to_proto"]
