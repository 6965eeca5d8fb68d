"""The residual attention networks for volumes: 3D-ResAttNet-18 and 34, and a small one that a CPU trains in minutes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import TEST, TRAIN, Network, classify, solver

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}  # residual blocks of each stage
PARAMETERS = {18: "34,002,984", 34: "65,010,959"}
GFLOPS = {18: "41", 34: "77"}
MSRA = {"type": "msra"}
ZERO = {"type": "constant", "value": 0}
# Weights of two classes that start near 0 stay about opposite: the softmax sees their difference only, so what they
# have in common is not learned, but would be in the map of each class that Grad-CAM draws. The high rate is to let them
# leave 0 early. That this helps is a conjecture: with it, the map finds the atrophy in three of four trainings.
BALANCED: dict[str, object] = {
    "weight_filler": {"type": "gaussian", "std": 0.001},
    "param": [{"lr_mult": 10}, {"lr_mult": 10}],
}


@dataclass(frozen=True)
class Brains:
    """Made-up brains of two classes, from scripts/make_brains.py, or any other two lists of scans.

    Args:
        size: voxels along each axis that the scans are resampled to.
        augment: what is done to those to train on: ``mirror``, ``shift``.
    """

    size: int
    augment: dict[str, object]
    kind: str = "volumes"

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, *[self.size] * 3)

    def read(self, n: NetSpec, train: int, test: int) -> Top:
        settings = {"shape": self.size, "intensity": P.VolumeData.Z_SCORE}
        n.data, n.label = L.VolumeData(
            name="data",
            ntop=2,
            include=TRAIN,
            source="data/brains/train.txt",
            batch_size=train,
            shuffle=True,
            **settings,
            **self.augment,
        )
        # Both layers make the same blobs, each in its phase; so this one's tops cannot have names of their own.
        n["data (test)"] = L.VolumeData(
            name="data",
            ntop=0,
            top=["data", "label"],
            include=TEST,
            source="data/brains/test.txt",
            batch_size=test,
            **settings,
        )
        label: Top = n.label
        return label

    def feed(self, n: NetSpec) -> None:
        n.data = L.Input(shape={"dim": [1, *self.shape]})


def convolution(n: NetSpec, bottom: Top, name: str, channels: int, kernel: int, stride: int) -> Top:
    """A convolution over the volume without bias, normalised and scaled."""
    conv = n[name] = L.Convolution(
        bottom,
        num_output=channels,
        kernel_size=kernel,
        stride=stride,
        pad=kernel // 2,
        bias_term=False,
        weight_filler=MSRA,
    )
    norm = n[f"bn_{name}"] = L.BatchNorm(conv, moving_average_fraction=0.9, in_place=True)
    scale: Top = L.Scale(norm, bias_term=True, in_place=True)
    n[f"scale_{name}"] = scale
    return scale


def conv_block(n: NetSpec, bottom: Top, name: str, channels: int, stride: int) -> Top:
    """The paper's Conv block: a 3x3x3 convolution, normalised, scaled, and ReLU."""
    relu: Top = L.ReLU(convolution(n, bottom, name, channels, 3, stride), in_place=True)
    n[f"{name}_relu"] = relu
    return relu


def residual(n: NetSpec, bottom: Top, name: str, channels: int, stride: int, project: bool) -> Top:
    """Two Conv blocks plus their own bottom or, where the shape changes, a projection of it.

    As in all residual networks, the ReLU of the second block is behind the sum.
    """
    shortcut = convolution(n, bottom, f"{name}_shortcut", channels, 1, stride) if project else bottom
    top = conv_block(n, bottom, f"{name}a", channels, stride)
    top = convolution(n, top, f"{name}b", channels, 3, 1)
    n[name] = L.Eltwise(shortcut, top, operation=P.Eltwise.SUM)
    relu: Top = L.ReLU(n[name], in_place=True)
    n[f"{name}_relu"] = relu
    return relu


def self_attention(n: NetSpec, bottom: Top, name: str, channels: int) -> Top:
    """``x + gamma · o(x)``: SAGAN's layer, with its letters. f gives the keys, g the queries, h the values.

    gamma is a number that is learned and starts at 0: at first the layer passes its bottom on.
    """
    # f goes without a bias: it would add the same to all weights of a place, which a softmax does not see.
    few = max(1, channels // 8)
    n[f"{name}_f"] = L.Convolution(bottom, num_output=few, kernel_size=1, weight_filler=MSRA, bias_term=False)
    for letter, outputs in (("g", few), ("h", channels)):
        n[f"{name}_{letter}"] = L.Convolution(bottom, num_output=outputs, kernel_size=1, weight_filler=MSRA)
    n[f"{name}_o"] = L.Attention(n[f"{name}_g"], n[f"{name}_f"], n[f"{name}_h"])
    n[f"{name}_gamma"] = L.Scale(n[f"{name}_o"], axis=0, num_axes=0, filler=ZERO)
    attended: Top = L.Eltwise(bottom, n[f"{name}_gamma"], operation=P.Eltwise.SUM)
    n[name] = attended
    return attended


def build(
    n: NetSpec,
    label: Top | None,
    depth: int,
    width: int,
    strides: tuple[int, ...],
    classifier: dict[str, object],
) -> None:
    """The layers behind the data.

    Args:
        depth: a key of BLOCKS.
        width: channels of the first convolution and stage; each further stage has twice as many.
        strides: of each stage.
        classifier: fields of the fully connected layer.
    """
    top = conv_block(n, n.data, "conv1", width, 2)
    top = n.pool1 = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=3, stride=2)
    for stage, (blocks, stride) in enumerate(zip(BLOCKS[depth], strides, strict=True), 1):
        channels = width * 2 ** (stage - 1)
        for index in range(1, blocks + 1):
            first = stage > 1 and index == 1
            top = residual(n, top, f"res{stage}_{index}", channels, stride if first else 1, project=first)
            if stage > 1:
                top = self_attention(n, top, f"att{stage}_{index}", channels)
    n.pool5 = L.Pooling(top, pool=P.Pooling.AVE, global_pooling=True)
    n.fc = L.InnerProduct(n.pool5, num_output=2, **classifier)
    classify(n, n.fc, label)


ABOUT = """
3D-ResAttNet-{depth} on MRI scans of brains, healthy (0) or with an atrophy (1).

From Akintoye et al., "A hybrid parallelization approach for distributed and scalable deep learning", 2021, section
4.3, after Zhang et al., "An explainable 3D residual self-attention deep neural network for joint atrophy localization
and Alzheimer's disease diagnosis using structural MRI", 2020. {parameters} parameters, {gflops} GFLOP a volume.

A 3x3x3 Conv block, max pooling, and a residual network of {blocks} blocks, each of two 3x3x3 Conv blocks; behind each
block of the last three stages stands a self-attention layer over all places. The first stage, which finds the
low-level features, has none: its maps have 28x28x28 places, where one such layer would cost twice what all
convolutions do, while in the paper these weigh most.

The lists in data/brains name the volumes; scripts/make_brains.py makes some. Each is resampled to 112x112x112 voxels.
"""

ABOUT_SMALL = """
3D-ResAttNet-18 made small, for a CPU: volumes of 32x32x32 voxels, a sixteenth of the channels, and no strides behind
the max pooling, so that all stages have 8x8x8 places. 133,674 parameters, 0.21 GFLOP a volume. See
train_val.prototxt.

The lists in data/brains name the volumes; scripts/make_brains.py makes them.
"""

SOLVER = """\
    net: "prototxt/{folder}/train_val.prototxt"

    test_iter: 20         # 20 batches of 4: all 80
    test_interval: 135
    test_initialization: false

    base_lr: 0.0001
    lr_policy: "multistep"
    gamma: 0.01
    stepvalue: 900
    momentum: 0.9
    weight_decay: 0.0001

    max_iter: 1350
    display: 10
    average_loss: 10
    snapshot: 1350
    snapshot_prefix: "snapshots/{folder}/{prefix}"
    solver_mode: CPU      # so that it runs anywhere; --gpu has the last word
    """

ALIKE = """\
    parallel_param { sync_batch_norm: true }      # many ranks give the curve of one
    """

HYBRID = """\
    parallel_param {
      num_stages: 2
      exchange: ASGD
      server: COLOCATED
      pipeline_param { allocator: GABRA schedule: DELAYED partition_by: CONV_BLOCKS }
    }
    """

ABOUT_SOLVER = """
Trains 3D-ResAttNet-{depth}: 50 epochs of 160 volumes in batches of 6.

    bpt train --solver prototxt/{folder}/solver.prototxt --gpu 0

Batch, epochs and rates are the paper's: SGD at 1e-4, "reduced by 1e-2 with increased iterations", here behind two
thirds. Momentum and weight decay are ours; the paper names none. With other data, set max_iter to 50 / 6 of the number
of volumes, stepvalue to two thirds of that, and test_iter to what there is to test on.
"""

ABOUT_HYBRID = """
Trains 3D-ResAttNet-{depth} as the paper does: a pipeline of stages, placed by GABRA, with delayed gradients, in which
Conv blocks stay whole, and several such pipelines side by side by asynchronous SGD. Elsewise {alone}{but}.

    mpirun -n 4 bpt train --solver prototxt/{folder}/{name}
    bpt plan --solver prototxt/{folder}/{name} --shape {shape} \\
             --devices prototxt/clusters/eight_unlike.prototxt

Name your own devices in the cluster file, and see docs/plan.md for what else there is to choose.
"""

BUT = (  # the small one's
    ", but for 15 epochs at half the rate, since gradients are stale; it falls twice, since the statistics of "
    "BatchNorm come from a few batches of each pipeline, and are right once weights hardly move"
)

SMALL_SOLVER = """\
    net: "prototxt/resattnet18_3d/train_val_small.prototxt"

    test_iter: 4          # 4 batches of 20: all 80
    test_interval: 27
    test_initialization: false

    base_lr: {rate}
    lr_policy: "multistep"
    gamma: 0.1
    stepvalue: {drop}
    momentum: 0.9
    weight_decay: 0.001

    max_iter: {last}
    display: 9
    average_loss: 9
    snapshot: {last}
    snapshot_prefix: "snapshots/resattnet18_3d/{prefix}"
    solver_mode: CPU      # --gpu has the last word
    """

ABOUT_SMALL_SOLVER = """
Trains the small 3D-ResAttNet-18 on made-up brains.

    scripts/make_brains.py
    bpt train --solver prototxt/resattnet18_3d/solver_small.prototxt
"""


def network(depth: int) -> Network:
    folder = f"resattnet{depth}_3d"
    about = ABOUT.format(depth=depth, parameters=PARAMETERS[depth], gflops=GFLOPS[depth], blocks=sum(BLOCKS[depth]))
    text = solver(ABOUT_SOLVER.format(depth=depth, folder=folder), SOLVER.format(folder=folder, prefix=folder), ALIKE)
    build_it = partial(build, depth=depth, width=64, strides=(1, 2, 2, 2), classifier={"weight_filler": MSRA})
    data = Brains(112, {"mirror": True})
    solvers = {"solver.prototxt": text} | hybrid(depth, folder, "solver", "x".join(map(str, data.shape)), SOLVER)
    return Network(folder, f"3D-ResAttNet-{depth}", about, build_it, data, (6, 4), solvers)


def hybrid(depth: int, folder: str, alone: str, shape: str, text: str) -> dict[str, str]:
    """The solver of the same training on pipelines: file name → text.

    Args:
        alone: the file name of the plain one, without its end.
        shape: of a sample.
        text: what both have in common.
    """
    name = f"{alone}_hybrid.prototxt"
    but = "" if alone == "solver" else BUT
    about = ABOUT_HYBRID.format(
        depth=depth, folder=folder, name=name, alone=f"as {alone}.prototxt", but=but, shape=shape
    )
    prefix = "hybrid" if alone == "solver" else "small_hybrid"
    numbers = {"rate": 0.0025, "drop": "270 stepvalue: 351", "last": 405}
    return {name: solver(about, text.format(folder=folder, prefix=prefix, **numbers), HYBRID)}


def small() -> Network:
    build_it = partial(build, depth=18, width=4, strides=(1, 1, 1, 1), classifier=BALANCED)
    data = Brains(32, {"mirror": True, "shift": 1})
    text = solver(ABOUT_SMALL_SOLVER, SMALL_SOLVER.format(prefix="small", rate=0.005, drop=108, last=162), ALIKE)
    return Network(
        "resattnet18_3d",
        "3D-ResAttNet-18_small",
        ABOUT_SMALL,
        build_it,
        data,
        (6, 20),
        {"solver_small.prototxt": text} | hybrid(18, "resattnet18_3d", "solver_small", "1x32x32x32", SMALL_SOLVER),
        "_small",
    )


NETWORKS = [network(18), small(), network(34)]
