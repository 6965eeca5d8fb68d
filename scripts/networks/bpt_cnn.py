"""The seven networks of BPT-CNN's Table 2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import IMAGENET, Network, classify, imagenet_solver


@dataclass(frozen=True)
class Case:
    """One column of the table."""

    convolutions: int
    filters: int
    hidden: int
    neurons: int


CASES = {
    1: Case(2, 4, 3, 500),
    2: Case(4, 4, 3, 1000),
    3: Case(6, 8, 5, 1500),
    4: Case(8, 8, 5, 1500),
    5: Case(8, 10, 7, 2000),
    6: Case(10, 10, 7, 2000),
    7: Case(10, 12, 7, 2000),
}
MSRA = {"type": "msra"}
# Without normalisation layers, inputs of about 1 keep the outputs of all layers there.
SCALED = replace(IMAGENET, transform={**IMAGENET.transform, "scale": 1 / 64})


def build(n: NetSpec, label: Top | None, case: Case) -> None:
    top = n.data
    for index in range(1, case.convolutions + 1):
        n[f"conv{index}"] = L.Convolution(top, num_output=case.filters, kernel_size=3, pad=1, weight_filler=MSRA)
        top = n[f"relu{index}"] = L.ReLU(n[f"conv{index}"], in_place=True)
        if index in (case.convolutions // 2, case.convolutions):
            name = f"pool{index * 2 // case.convolutions}"
            top = n[name] = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=4, stride=4)
    for index in range(1, case.hidden + 1):
        n[f"fc{index}"] = L.InnerProduct(top, num_output=case.neurons, weight_filler=MSRA)
        top = n[f"fc{index}_relu"] = L.ReLU(n[f"fc{index}"], in_place=True)
    n.score = L.InnerProduct(top, num_output=1000, weight_filler={"type": "gaussian", "std": 0.01})
    classify(n, n.score, label)


ABOUT = """
BPT-CNN's network of case {number}: {case.convolutions} convolutions of {case.filters} filters, {case.hidden} fully
connected layers of {case.neurons} neurons.

From Chen et al., "A bi-layered parallel training architecture for large-scale convolutional neural networks", 2018,
Table 2. The paper gives those four numbers and the data set, no more. Ours are: 224x224 images, 3x3 filters, ReLU, 4x4
max pooling after each half of the convolutions (so that a case of more layers is always the heavier one), a
classifier of 1000 classes behind the fully connected layers, and a softmax loss in place of the square error.
"""

SOLVER = """\
    test_interval: 5000
    test_initialization: false

    base_lr: 0.01
    lr_policy: "fixed"
    momentum: 0.9
    weight_decay: 0.0005

    max_iter: 500000      # 100 epochs of 5,005 batches
    display: 20
    snapshot: 10000
    """


def network(number: int) -> Network:
    case, folder = CASES[number], f"bpt_cnn/case{number}"
    about = f"Trains BPT-CNN's network of case {number} on ImageNet."
    solver = imagenet_solver(folder, about, SOLVER)
    return Network(
        folder,
        f"BPT-CNN_case{number}",
        ABOUT.format(number=number, case=case),
        partial(build, case=case),
        SCALED,
        (256, 25),
        {"solver.prototxt": solver},
    )


NETWORKS = [network(number) for number in CASES]
