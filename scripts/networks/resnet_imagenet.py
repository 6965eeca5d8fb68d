"""The residual networks for ImageNet: ResNet-50 and ResNet-152."""

from __future__ import annotations

from functools import partial

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import IMAGENET, Network, classify, imagenet_solver

BLOCKS = {50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}  # residual blocks of each stage
PARAMETERS = {50: "25,557,032", 152: "60,192,808"}
GFLOPS = {50: "7.8", 152: "22.7"}
ACCURACY = {50: "75.3 % of the validation images right, 92.2 %", 152: "77.0 % of the validation images right, 93.3 %"}
MSRA = {"type": "msra"}


def convolution(n: NetSpec, bottom: Top, name: str, suffix: str, channels: int, kernel: int, stride: int) -> Top:
    """A convolution without bias, normalised and scaled."""
    conv = n[name] = L.Convolution(
        bottom,
        num_output=channels,
        kernel_size=kernel,
        stride=stride,
        pad=kernel // 2,
        bias_term=False,
        weight_filler=MSRA,
    )
    norm = n[f"bn{suffix}"] = L.BatchNorm(conv, in_place=True)
    scale: Top = L.Scale(norm, bias_term=True, in_place=True)
    n[f"scale{suffix}"] = scale
    return scale


def bottleneck(n: NetSpec, bottom: Top, name: str, channels: int, stride: int, project: bool) -> Top:
    """1x1, 3x3 and 1x1 convolutions, plus their own bottom or, where the shape changes, a projection of it."""
    shortcut = bottom
    if project:
        branch = f"{name}_branch1"
        shortcut = convolution(n, bottom, f"res{branch}", branch, 4 * channels, 1, stride)
    top = bottom
    for letter, kernel, step in (("a", 1, stride), ("b", 3, 1)):
        branch = f"{name}_branch2{letter}"
        top = convolution(n, top, f"res{branch}", branch, channels, kernel, step)
        top = n[f"res{branch}_relu"] = L.ReLU(top, in_place=True)
    branch = f"{name}_branch2c"
    top = convolution(n, top, f"res{branch}", branch, 4 * channels, 1, 1)
    n[f"res{name}"] = L.Eltwise(shortcut, top, operation=P.Eltwise.SUM)
    relu: Top = L.ReLU(n[f"res{name}"], in_place=True)
    n[f"res{name}_relu"] = relu
    return relu


def block_name(stage: int, block: int, blocks: int) -> str:
    """2a, 2b, 2c, but 3a, 3b1, 3b2, … in ResNet-152's long stages: the names in the released weights."""
    if blocks <= 6:
        return f"{stage}{'abcdef'[block]}"
    return f"{stage}b{block}" if block else f"{stage}a"


def build(n: NetSpec, label: Top | None, depth: int) -> None:
    top = convolution(n, n.data, "conv1", "_conv1", 64, 7, 2)
    n.conv1_relu = L.ReLU(top, in_place=True)
    n.pool1 = L.Pooling(n.conv1_relu, pool=P.Pooling.MAX, kernel_size=3, stride=2)
    top = n.pool1
    for stage, blocks in enumerate(BLOCKS[depth], 2):
        for block in range(blocks):
            stride = 2 if stage > 2 and block == 0 else 1
            channels = 64 * 2 ** (stage - 2)
            top = bottleneck(n, top, block_name(stage, block, blocks), channels, stride, project=block == 0)
    n.pool5 = L.Pooling(top, pool=P.Pooling.AVE, global_pooling=True)
    n.fc1000 = L.InnerProduct(n.pool5, num_output=1000, weight_filler=MSRA)
    classify(n, n.fc1000, label)


ABOUT = """
ResNet-{depth} on ImageNet.

From He et al., "Deep residual learning for image recognition", 2016, with the layer names of the authors' Caffe
files. {parameters} parameters, {gflops} GFLOP an image. The authors' weights get {accuracy} in the first five
guesses.{bias}

The LMDBs hold colour images of 256x256 pixels. A batch of 32 is what each of the paper's eight GPUs normalises over;
iter_size in the solver makes it the whole 256.
"""
BIAS = " (Their conv1 has a bias, which BatchNorm cancels; this one has none, so those weights want bias_term: true.)"

SOLVER = """\
    test_interval: 5000
    test_initialization: false

    iter_size: 8          # 8 x 32 = 256 images an update
    base_lr: 0.1
    lr_policy: "multistep"
    gamma: 0.1
    stepvalue: 150000     # 30 epochs
    stepvalue: 300000     # 60 epochs
    stepvalue: 450000     # 90 epochs
    momentum: 0.9
    weight_decay: 0.0001

    max_iter: 600000
    display: 20
    average_loss: 20
    snapshot: 10000
    """


def network(depth: int) -> Network:
    folder = f"resnet{depth}"
    about = ABOUT.format(
        depth=depth,
        parameters=PARAMETERS[depth],
        gflops=GFLOPS[depth],
        accuracy=ACCURACY[depth],
        bias=BIAS if depth == 50 else "",
    )
    solver = imagenet_solver(folder, f"Trains ResNet-{depth} on ImageNet: 120 epochs of 5,005 batches of 256.", SOLVER)
    build_it = partial(build, depth=depth)
    return Network(folder, f"ResNet-{depth}", about, build_it, IMAGENET, (32, 25), {"solver.prototxt": solver})


NETWORKS = [network(depth) for depth in BLOCKS]
