"""The residual networks for CIFAR-10: ResNet-20, 32, 44, 56 and 110."""

from __future__ import annotations

from functools import partial

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import CIFAR10, Network, classify, solver

PARAMETERS = {20: "269,722", 32: "464,154", 44: "658,586", 56: "853,018", 110: "1,727,962"}
MFLOPS = {20: 82, 32: 139, 44: 197, 56: 254, 110: 512}
ERRORS = {20: 8.75, 32: 7.51, 44: 7.17, 56: 6.97, 110: 6.43}  # the paper's, in per cent
MSRA = {"type": "msra"}


def convolution(n: NetSpec, bottom: Top, name: str, channels: int, stride: int) -> Top:
    """A 3x3 convolution without bias, normalised and scaled."""
    conv = n[name] = L.Convolution(
        bottom, num_output=channels, kernel_size=3, stride=stride, pad=1, bias_term=False, weight_filler=MSRA
    )
    norm = n[f"bn_{name}"] = L.BatchNorm(conv, moving_average_fraction=0.9, in_place=True)
    scale: Top = L.Scale(norm, bias_term=True, in_place=True)
    n[f"scale_{name}"] = scale
    return scale


def downsampled(n: NetSpec, bottom: Top, name: str) -> Top:
    """The paper's shortcut without parameters (option A): every second pixel, and as many channels of zeros again.

    Pooling over one pixel picks it; round_mode FLOOR keeps Caffe from adding a window beyond the border.
    """
    n[f"{name}_pick"] = L.Pooling(bottom, pool=P.Pooling.MAX, kernel_size=1, stride=2, round_mode=P.Pooling.FLOOR)
    n[f"{name}_zeros"] = L.Power(n[f"{name}_pick"], scale=0)
    shortcut: Top = L.Concat(n[f"{name}_pick"], n[f"{name}_zeros"])
    n[f"{name}_shortcut"] = shortcut
    return shortcut


def block(n: NetSpec, bottom: Top, name: str, channels: int, stride: int) -> Top:
    """Two convolutions plus their own bottom."""
    top = convolution(n, bottom, f"{name}a", channels, stride)
    n[f"{name}a_relu"] = L.ReLU(top, in_place=True)
    top = convolution(n, n[f"{name}a_relu"], f"{name}b", channels, 1)
    shortcut = downsampled(n, bottom, name) if stride == 2 else bottom
    n[name] = L.Eltwise(shortcut, top, operation=P.Eltwise.SUM)
    relu: Top = L.ReLU(n[name], in_place=True)
    n[f"{name}_relu"] = relu
    return relu


def build(n: NetSpec, label: Top | None, depth: int) -> None:
    n.conv1_relu = L.ReLU(convolution(n, n.data, "conv1", 16, 1), in_place=True)
    top = n.conv1_relu
    for stage in (1, 2, 3):
        for index in range(1, (depth - 2) // 6 + 1):
            stride = 2 if stage > 1 and index == 1 else 1
            top = block(n, top, f"res{stage}_{index}", 16 * 2 ** (stage - 1), stride)
    n.pool = L.Pooling(top, pool=P.Pooling.AVE, global_pooling=True)
    n.fc = L.InnerProduct(n.pool, num_output=10, weight_filler=MSRA)
    classify(n, n.fc, label)


ABOUT = """
ResNet-{depth} on CIFAR-10: 3 x {blocks} residual blocks of two convolutions. One of the nets of StaticLB's Table 4.

From He et al., "Deep residual learning for image recognition", 2016, section 4.2, with its shortcuts without
parameters (option A), here of Pooling, Power and Concat. {parameters} parameters, {mflops} MFLOP an image. The paper
reports {accuracy:.2f} % on the test set.

The paper pads the images to 40x40 pixels and trains on random windows of 32x32. For that, put padded images into
data/cifar10/train_lmdb; crop_size does the rest. Images of 32x32 are only mirrored, which costs 2 to 3 %.
"""

SCHEDULE = """\
    test_iter: 100        # 100 batches of 100: the whole test set
    test_interval: 1000

    base_lr: 0.1
    lr_policy: "multistep"
    gamma: 0.1
    stepvalue: 32000
    stepvalue: 48000
    momentum: 0.9
    weight_decay: 0.0001

    max_iter: 64000
    display: 100
    snapshot: 8000
    """

SYNC = "parallel_param { sync_batch_norm: true }      # many ranks give the curve of one\n"

WARM_UP = """\
    base_lr: 0.01
    lr_policy: "fixed"
    momentum: 0.9
    weight_decay: 0.0001

    max_iter: 400
    display: 100
    """


def solvers(depth: int) -> dict[str, str]:
    folder = f"resnet{depth}"
    train = f"    bpt train --solver prototxt/{folder}"
    net = f'net: "prototxt/{folder}/train_val.prototxt"\n\n'
    end = f'snapshot_prefix: "snapshots/{folder}/{folder}"\nsolver_mode: CPU      # --gpu has the last word\n' + SYNC
    about = f"Trains ResNet-{depth} on CIFAR-10: 64,000 batches of 128, 164 epochs."
    command = f"{train}/solver.prototxt --gpu 0"
    if depth < 110:
        return {"solver.prototxt": solver(f"{about}\n\n{command}", net, SCHEDULE, end)}
    about += " At this depth the paper starts with 400 iterations at a tenth of the rate: solver_warmup.prototxt."
    command += f" \\\n        --snapshot snapshots/{folder}/{folder}_iter_400.solverstate"
    warm_up = f"ResNet-{depth}'s first 400 iterations; solver.prototxt goes on from their snapshot."
    return {
        "solver_warmup.prototxt": solver(f"{warm_up}\n\n{train}/solver_warmup.prototxt --gpu 0", net, WARM_UP, end),
        "solver.prototxt": solver(f"{about}\n\n{command}", net, SCHEDULE, end),
    }


def network(depth: int) -> Network:
    about = ABOUT.format(
        depth=depth,
        blocks=(depth - 2) // 6,
        parameters=PARAMETERS[depth],
        mflops=MFLOPS[depth],
        accuracy=100 - ERRORS[depth],
    )
    build_it = partial(build, depth=depth)
    name = f"ResNet-{depth}_CIFAR10"
    return Network(f"resnet{depth}", name, about, build_it, CIFAR10, (128, 100), solvers(depth))


NETWORKS = [network(depth) for depth in PARAMETERS]
