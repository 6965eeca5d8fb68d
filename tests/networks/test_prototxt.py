"""The networks of ``prototxt/``: they parse, build in both phases, and have the sizes they are known for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from bpt.caffe.netspec import L, NetSpec
from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import read_text
from bpt.graph.layer_graph import LayerGraph
from bpt.graph.layer_specs import layer_specs
from bpt.graph.state import filter_layers
from bpt.nn.net import Net
from scripts.make_prototxt import generated
from scripts.networks.resnet_cifar import downsampled
from tests.support.net_cases import graph_in, read_net
from tests.support.paths import PROTOTXT
from tests.support.shipped_nets import deploy, train_val

FILES = sorted(str(path.relative_to(PROTOTXT)) for path in PROTOTXT.rglob("*.prototxt"))
SOLVERS = [path for path in FILES if Path(path).name.startswith("solver")]
DATA_LAYERS = ("AnnotatedData", "Data", "HDF5Data", "VolumeData")
FOLDERS = sorted({str(Path(path).parent) for path in FILES} - {"clusters"})  # of networks


def fully_connected(inputs: int, *outputs: int) -> int:
    """Weights and biases of fully connected layers one behind the other."""
    return sum((a + 1) * b for a, b in zip((inputs, *outputs), outputs, strict=False))


def residual_cifar(depth: int) -> int:
    """Convolutions without bias, each with a scale and a shift for every channel, and the classifier."""
    blocks = (depth - 2) // 6

    def conv(inputs: int, outputs: int) -> int:
        return 9 * inputs * outputs + 2 * outputs

    return (
        conv(3, 16)
        + 2 * blocks * conv(16, 16)
        + conv(16, 32)
        + (2 * blocks - 1) * conv(32, 32)
        + conv(32, 64)
        + (2 * blocks - 1) * conv(64, 64)
        + fully_connected(64, 10)
    )


def residual_attention(blocks: tuple[int, ...]) -> int:
    """Convolutions without bias, each with a scale and a shift for every channel, and the classifier of two classes.

    Behind each block of stages 2 to 4 stands self-attention: f and g to an eighth of the channels, h to as many, all
    but f with bias, and gamma. Their first blocks have a projection for shortcut.
    """

    def conv(kernel: int, inputs: int, outputs: int) -> int:
        return kernel * inputs * outputs + 2 * outputs

    total = conv(27, 1, 64) + 2 * blocks[0] * conv(27, 64, 64)
    for channels, number in zip((128, 256, 512), blocks[1:], strict=True):
        total += conv(27, channels // 2, channels) + conv(1, channels // 2, channels)
        total += (2 * number - 1) * conv(27, channels, channels)
        total += number * ((channels + 1) * (channels // 8 + channels) + channels * (channels // 8) + 1)
    return total + fully_connected(512, 2)


def bpt_cnn(convolutions: int, filters: int, hidden: int, neurons: int) -> int:
    """224x224 images, pooled by 4 twice: 14x14 pixels reach the fully connected layers."""
    conv = (27 + 1) * filters + (convolutions - 1) * (9 * filters + 1) * filters
    return conv + fully_connected(14 * 14 * filters, *[neurons] * hidden, 1000)


# Learnable parameters: published numbers, or the sum written out.
PARAMETERS = {
    "lenet": 431_080,
    "cifar10_quick": 145_578,
    "cifar10_full": 89_578,  # the recording's; (75 + 1) * 32 + (800 + 1) * 32 + (800 + 1) * 64 + (1024 + 1) * 10
    "alexnet": 60_965_224,
    "googlenet": 13_378_280,  # with both side losses: the recording's
    "vgg16": 138_357_544,
    "caffenet": 60_965_224,  # as AlexNet's
    "mnist_autoencoder": fully_connected(784, 1000, 500, 250, 30, 250, 500, 1000, 784),
    "mnist_siamese": 431_080 + fully_connected(10, 2),  # a LeNet, whose weights both images share
    "cifar10_full_sigmoid": 89_578,
    "cifar10_full_sigmoid_bn": 89_578 - 32 - 32 - 64,  # no bias
    # Four convolutions, a scale and a bias of each channel; what tells offsets and scores of four boxes, from two maps.
    "ssd_shapes": sum(9 * a * b + 2 * b for a, b in ((3, 16), (16, 32), (32, 64), (64, 64)))
    + 2 * (9 * 64 + 1) * (16 + 16),
    # 3x3 convolutions, two 1x1 ones that score, and what enlarges by 2 and by 4, class by class.
    "fcn_shapes": sum(
        (9 * a + 1) * b for a, b in ((3, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64), (64, 128))
    )
    + fully_connected(128, 4)
    + fully_connected(32, 4)
    + 4 * (4 * 4 + 8 * 8),
    # Two convolutions, a fully connected layer, the four gates of 64 cells, the classes.
    "lrcn_moves": 26 * 8 + 73 * 16 + fully_connected(144, 64) + 4 * 64 * (64 + 64 + 1) + fully_connected(64, 4),
    "resnet20": residual_cifar(20),
    "resnet32": residual_cifar(32),
    "resnet44": residual_cifar(44),
    "resnet56": residual_cifar(56),
    "resnet110": residual_cifar(110),
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "resattnet18_3d": residual_attention((2, 2, 2, 2)),
    "resattnet34_3d": residual_attention((3, 4, 6, 3)),
    "staticlb_mnist": 21_840,  # StaticLB, Table 1
    "staticlb_cifar10": 176_034,  # StaticLB, Table 2
    "bpt_cnn/case1": bpt_cnn(2, 4, 3, 500),
    "bpt_cnn/case2": bpt_cnn(4, 4, 3, 1000),
    "bpt_cnn/case3": bpt_cnn(6, 8, 5, 1500),
    "bpt_cnn/case4": bpt_cnn(8, 8, 5, 1500),
    "bpt_cnn/case5": bpt_cnn(8, 10, 7, 2000),
    "bpt_cnn/case6": bpt_cnn(10, 10, 7, 2000),
    "bpt_cnn/case7": bpt_cnn(10, 12, 7, 2000),
}

# What comes out of deploy.prototxt, other than probabilities of classes; and the losses' weights, other than 1.
OUTPUTS: dict[str, tuple[str, tuple[int, ...]]] = {
    "mnist_autoencoder": ("decode1neuron", (1, 784)),
    "mnist_siamese": ("feat", (1, 2)),
    "fcn_shapes": ("prob", (1, 4, 50, 50)),
    "lrcn_moves": ("prob", (8, 1, 4)),
    "ssd_shapes": ("detection_out", (1, 1, 1, 7)),
}
WEIGHTS = {"googlenet": [0.3, 0.3, 1], "mnist_autoencoder": [1, 0]}

# Test images, or volumes, or rows, of each data set.
TEST_IMAGES = {
    "data/clips/test.txt": 320 * 8,
    "data/digit_pairs/test_lmdb": 4 * 360,
    "data/boxes/test_lmdb": 200,
    "data/shapes/test_images_lmdb": 200,
    "data/brains/test.txt": 80,
    "data/digits/test_lmdb": 360,
    "data/mnist/test_lmdb": 10_000,
    "data/cifar10/test_lmdb": 10_000,
    "data/imagenet/val_lmdb": 50_000,
}


def learnable(graph: LayerGraph) -> int:
    """Elements of all parameters that training changes."""
    return sum(math.prod(param.shape) for param in graph.learnable if param.learnable)


def test_there_is_a_number_for_every_folder() -> None:
    assert set(FOLDERS) == set(PARAMETERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_parameters(folder: str) -> None:
    assert learnable(train_val(folder, pb.TRAIN)) == PARAMETERS[folder]


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.72)])
def test_residual_nets_are_those_of_staticlb(depth: int, millions: float) -> None:
    """Its Table 4 (where 1.728 million was cut, not rounded)."""
    assert learnable(train_val(f"resnet{depth}", pb.TRAIN)) / 1e6 == pytest.approx(millions, abs=0.01)


def test_residual_shortcut_takes_every_second_pixel_and_adds_zeros() -> None:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [2, 3, 8, 8]})
    downsampled(n, n.data, "down")
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    shortcut = Net(graph_in(n.to_proto(), pb.TEST))(images)
    assert torch.equal(shortcut, torch.cat([images[:, :, ::2, ::2], torch.zeros(2, 3, 4, 4)], dim=1))


@pytest.mark.parametrize("folder", FOLDERS)
def test_outputs(folder: str) -> None:
    few = {"data/brains": 2, "data/cifar10": 10, "data/digits": 10, "data/mnist": 10}
    classes = few.get(str(Path(_source(folder)).parent), 1000)
    (output,) = deploy(folder).outputs
    assert (output.blob, output.shape) == OUTPUTS.get(folder, ("prob", (1, classes)))
    graph = train_val(folder, pb.TRAIN)
    weights = [edge.loss_weight for edge in graph.outputs]
    assert weights == pytest.approx(WEIGHTS.get(folder, [1]))
    assert all(edge.shape == () for edge in graph.outputs)


def _source(folder: str) -> str:
    return _data_source(read_net(f"{folder}/train_val.prototxt").layer[0])


def _data_source(layer: pb.LayerParameter) -> str:
    return str(_data_param(layer).source)


def _data_param(layer: pb.LayerParameter) -> Any:
    if layer.type == "VolumeData":
        return layer.volume_data_param
    return layer.hdf5_data_param if layer.type == "HDF5Data" else layer.data_param


@pytest.mark.parametrize("folder", FOLDERS)
def test_weights_fit_from_training_to_testing_and_use(folder: str) -> None:
    def shapes(graph: LayerGraph) -> dict[tuple[str, int], tuple[int, ...]]:
        return {(graph.nodes[param.layer].name, param.blob): param.shape for param in graph.params}

    trained = shapes(train_val(folder, pb.TRAIN))
    assert shapes(train_val(folder, pb.TEST)) == trained
    used = shapes(deploy(folder))
    assert used.items() <= trained.items()
    # Side losses, and the other one of two that share their weights.
    assert all(layer.startswith(("loss1/", "loss2/")) or layer.endswith("_p") for layer, _ in trained.keys() - used)


def test_mnist_and_digits_share_their_layers() -> None:
    digits, mnist = (read_net(f"lenet/train_val{kind}.prototxt") for kind in ("", "_mnist"))
    assert [layer for layer in digits.layer if layer.type != "Data"] == [
        layer for layer in mnist.layer if layer.type != "Data"
    ]


@pytest.mark.parametrize("path", SOLVERS)
def test_a_test_sees_every_image_once(path: str) -> None:
    solver = read_text(PROTOTXT / path, pb.SolverParameter).message
    net = read_net(str(Path(solver.net).relative_to("prototxt")))
    train, test = (
        next(spec.param for spec in filter_layers(layer_specs(net), make_state(phase)) if spec.type in DATA_LAYERS)
        for phase in (pb.TRAIN, pb.TEST)
    )
    assert Path(_data_source(train)).name in ("train_lmdb", "train_images_lmdb", "train.txt")
    assert Path(_data_source(test)).name in ("test_lmdb", "test_images_lmdb", "val_lmdb", "test.txt")
    if path != "resnet110/solver_warmup.prototxt":  # too short for a test
        assert list(solver.test_iter) == [TEST_IMAGES[_data_source(test)] / _data_param(test).batch_size]


@pytest.mark.parametrize("path", SOLVERS)
def test_solvers_run_everywhere_and_keep_their_snapshots_apart(path: str) -> None:
    solver = read_text(PROTOTXT / path, pb.SolverParameter).message
    assert solver.solver_mode == pb.SolverParameter.CPU
    assert str(Path(solver.snapshot_prefix).parent) == f"snapshots/{Path(path).parent}"
    assert Path(solver.net).parent == Path("prototxt") / Path(path).parent


@pytest.mark.parametrize("path", FILES)
def test_a_comment_says_what_it_is(path: str) -> None:
    lines = (PROTOTXT / path).read_text().splitlines()
    assert lines[0].startswith("# ")
    assert max(map(len, lines)) <= 120


def test_generated_files_are_what_the_generator_writes() -> None:
    for path, text in generated().items():
        assert (PROTOTXT / path).read_text() == text, f"{path}: run python -m scripts.make_prototxt"
