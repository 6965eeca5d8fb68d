"""The recorded nets that ``prototxt/`` does not have, written with NetSpec from what their recordings tell."""

from __future__ import annotations

from bpt.netspec import L, NetSpec, P, Top
from bpt.proto import bpt_pb2 as pb


def _finish(n: NetSpec, name: str) -> pb.NetParameter:
    net = n.to_proto()
    net.name = name
    net.force_backward = True
    return net


def _inputs(n: NetSpec, shape: list[int], names: tuple[str, ...] = ("data", "label")) -> None:
    """An Input layer called "input" for a batch of two."""
    tops = L.Input(name="input", ntop=len(names), shape=[{"dim": shape}, {"dim": [2]}][: len(names)])
    for name, top in zip(names, [tops] if isinstance(tops, Top) else tops, strict=True):
        n[name] = top


def small_resnet() -> pb.NetParameter:
    """Four residual blocks, 16 to 48 channels, on 48x48 images."""
    n = NetSpec()
    _inputs(n, [2, 3, 48, 48])

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
    return _finish(n, "SmallResNet")


def caffenet() -> pb.NetParameter:
    """AlexNet with the pooling before the normalisation."""
    n = NetSpec()
    _inputs(n, [2, 3, 227, 227])
    top = n.data
    convolutions = [(96, 11, 4, 0, 1), (256, 5, 1, 2, 2), (384, 3, 1, 1, 1), (384, 3, 1, 1, 2), (256, 3, 1, 1, 2)]
    for index, (channels, kernel, stride, pad, group) in enumerate(convolutions, 1):
        n[f"conv{index}"] = L.Convolution(
            top, num_output=channels, kernel_size=kernel, stride=stride, pad=pad, group=group
        )
        n[f"relu{index}"] = L.ReLU(n[f"conv{index}"], in_place=True)
        top = n[f"relu{index}"]
        if index in (1, 2, 5):
            n[f"pool{index}"] = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=3, stride=2)
            top = n[f"pool{index}"]
        if index in (1, 2):
            n[f"norm{index}"] = L.LRN(top, local_size=5, alpha=0.0001, beta=0.75)
            top = n[f"norm{index}"]
    for index in (6, 7):
        n[f"fc{index}"] = L.InnerProduct(top, num_output=4096)
        n[f"relu{index}"] = L.ReLU(n[f"fc{index}"], in_place=True)
        n[f"drop{index}"] = L.Dropout(n[f"relu{index}"], in_place=True)
        top = n[f"drop{index}"]
    n.fc8 = L.InnerProduct(top, num_output=1000)
    n.loss = L.SoftmaxWithLoss(n.fc8, n.label)
    return _finish(n, "CaffeNet")


def cifar10_full_sigmoid_bn() -> pb.NetParameter:
    """cifar10_full with sigmoids and batch normalisation, without bias."""
    n = NetSpec()
    _inputs(n, [2, 3, 32, 32])
    top = n.data
    for index, channels in enumerate([32, 32, 64], 1):
        n[f"conv{index}"] = L.Convolution(top, num_output=channels, kernel_size=5, pad=2, bias_term=False)
        top = n[f"conv{index}"]
        if index == 1:
            n.pool1 = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=3, stride=2)
            top = n.pool1
        n[f"bn{index}"] = L.BatchNorm(top, param=[{"lr_mult": 0}] * 3)
        n[f"Sigmoid{index}"] = L.Sigmoid(n[f"bn{index}"])
        top = n[f"Sigmoid{index}"]
        if index > 1:
            n[f"pool{index}"] = L.Pooling(top, pool=P.Pooling.AVE, kernel_size=3, stride=2)
            top = n[f"pool{index}"]
    n.ip1 = L.InnerProduct(top, num_output=10)
    n.loss = L.SoftmaxWithLoss(n.ip1, n.label)
    return _finish(n, "CIFAR10_full")


def mnist_autoencoder() -> pb.NetParameter:
    """784 to 30 numbers and back, with two losses (both called "loss", as in Caffe's example)."""
    n = NetSpec()
    _inputs(n, [2, 1, 28, 28], ("data",))
    n.flatdata = L.Flatten(n.data)
    top = n.data
    sizes = {"encode": [1000, 500, 250, 30], "decode": [784, 1000, 500, 250]}
    order = [("encode", i) for i in (1, 2, 3, 4)] + [("decode", i) for i in (4, 3, 2, 1)]
    for side, index in order:
        name = f"{side}{index}"
        n[name] = L.InnerProduct(top, num_output=sizes[side][index - 1])
        top = n[name]
        if name not in ("encode4", "decode1"):
            n[f"{name}neuron"] = L.Sigmoid(top)
            top = n[f"{name}neuron"]
    n.cross_entropy_loss = L.SigmoidCrossEntropyLoss(n.decode1, n.flatdata, loss_weight=1, name="loss")
    n.decode1neuron = L.Sigmoid(n.decode1)
    n.l2_error = L.EuclideanLoss(n.decode1neuron, n.flatdata, loss_weight=0, name="loss")
    return _finish(n, "MNISTAutoencoder")


def mnist_siamese() -> pb.NetParameter:
    """Two LeNets with shared weights, which learn to tell whether two digits are alike."""
    n = NetSpec()
    _inputs(n, [2, 2, 28, 28], ("pair_data", "sim"))
    n.data, n.data_p = L.Slice(n.pair_data, name="slice_pair", slice_dim=1, slice_point=1, ntop=2)
    for end in ("", "_p"):

        def shared(layer: str) -> list[dict[str, object]]:
            return [{"name": f"{layer}_w", "lr_mult": 1}, {"name": f"{layer}_b", "lr_mult": 2}]

        top = n[f"data{end}"]
        for index, channels in ((1, 20), (2, 50)):
            conv = L.Convolution(top, num_output=channels, kernel_size=5, param=shared(f"conv{index}"))
            n[f"conv{index}{end}"] = conv
            top = n[f"pool{index}{end}"] = L.Pooling(conv, pool=P.Pooling.MAX, kernel_size=2, stride=2)
        n[f"ip1{end}"] = L.InnerProduct(top, num_output=500, param=shared("ip1"))
        n[f"relu1{end}"] = L.ReLU(n[f"ip1{end}"], in_place=True)
        n[f"ip2{end}"] = L.InnerProduct(n[f"relu1{end}"], num_output=10, param=shared("ip2"))
        n[f"feat{end}"] = L.InnerProduct(n[f"ip2{end}"], num_output=2, param=shared("feat"))
    n.loss = L.ContrastiveLoss(n.feat, n.feat_p, n.sim, margin=1)
    return _finish(n, "mnist_siamese_train_test")
