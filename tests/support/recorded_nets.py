"""The recorded net that ``prototxt/`` does not have, written with NetSpec from what its recording tells."""

from __future__ import annotations

from bpt.caffe.netspec import L, NetSpec, P, Top
from bpt.config.proto import bpt_pb2 as pb


def small_resnet() -> pb.NetParameter:
    """Four residual blocks, 16 to 48 channels, on 48x48 images."""
    n = NetSpec()
    n.data, n.label = L.Input(name="input", ntop=2, shape=[{"dim": [2, 3, 48, 48]}, {"dim": [2]}])

    def convolution(bottom: Top, name: str, channels: int, kernel: int, stride: int) -> Top:
        n[name] = L.Convolution(
            bottom, num_output=channels, kernel_size=kernel, stride=stride, pad=kernel // 2, bias_term=False
        )
        n[f"bn_{name}"] = L.BatchNorm(n[name], in_place=True)
        scale: Top = L.Scale(n[f"bn_{name}"], bias_term=True, in_place=True)
        n[f"scale_{name}"] = scale
        return scale

    n.relu1 = L.ReLU(convolution(n.data, "conv1", 16, 7, 2), in_place=True)
    n.pool1 = L.Pooling(n.relu1, pool=P.Pooling.MAX, kernel_size=3, stride=2)
    top = n.pool1
    for index, (channels, stride) in enumerate([(16, 1), (32, 2), (32, 1), (48, 2)]):
        name = f"res{index}"
        shortcut = top if stride == 1 else convolution(top, f"{name}_proj", channels, 1, stride)
        top = convolution(top, f"{name}a", channels, 3, stride)
        n[f"{name}a_relu"] = L.ReLU(top, in_place=True)
        top = convolution(n[f"{name}a_relu"], f"{name}b", channels, 3, 1)
        n[name] = L.Eltwise(shortcut, top)
        n[f"{name}_relu"] = L.ReLU(n[name], in_place=True)
        top = n[f"{name}_relu"]
    n.gap = L.Pooling(top, pool=P.Pooling.AVE, global_pooling=True)
    n.fc = L.InnerProduct(n.gap, num_output=10)
    n.loss = L.SoftmaxWithLoss(n.fc, n.label)
    net = n.to_proto()
    net.name = "SmallResNet"
    net.force_backward = True
    return net
