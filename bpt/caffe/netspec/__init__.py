"""Networks written in Python, as in pycaffe, for nets that are too long to write by hand.

An example::

    from bpt.caffe.netspec import L, NetSpec, P

    n = NetSpec()
    n.data, n.label = L.Data(source="data/digits/train_lmdb", backend=P.Data.LMDB, batch_size=64, ntop=2)
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    print(n.to_proto())

``L.<type>`` makes a layer, ``P.<message>.<value>`` is the value of an enum, and a ``NetSpec`` gives blobs and layers
their names. The layers get the names and the order that pycaffe gives them. A wrong type, setting or input raises a
UserError in the line that has it.
"""

from bpt.caffe.netspec.function import Function, Top, to_proto
from bpt.caffe.netspec.layers import L, P
from bpt.caffe.netspec.net_spec import NetSpec

__all__ = ["Function", "L", "NetSpec", "P", "Top", "to_proto"]
