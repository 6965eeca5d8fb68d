"""Nets of Caffe's examples and model zoo, with their names: CaffeNet, an autoencoder, a siamese net."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import (
    TEST,
    TRAIN,
    WEIGHT_AND_BIAS,
    WEIGHT_ONLY,
    DataSet,
    Network,
    classify,
    imagenet_solver,
    solver,
)

SCALE = {"crop_size": 28, "scale": 1 / 256}


@dataclass(frozen=True)
class Digits:
    """Images of digits, or pairs of them, from an LMDB.

    Args:
        folder: of the LMDBs.
        tops: what the images and, if named, the labels are called.
    """

    folder: str
    tops: tuple[str, ...]
    kind: str = "images of digits"

    def feed(self, n: NetSpec) -> None:
        n.data = L.Input(shape={"dim": [1, 1, 28, 28]})

    def read(self, n: NetSpec, train: int, test: int) -> Top:
        def layer(part: str, batch: int, include: Mapping[str, object], **tops: object) -> Top | tuple[Top, ...]:
            source = {"source": f"{self.folder}/{part}_lmdb", "batch_size": batch, "backend": P.Data.LMDB}
            made: Top | tuple[Top, ...] = L.Data(
                name=self.tops[0], include=include, transform_param=SCALE, data_param=source, **tops
            )
            return made

        made = layer("train", train, TRAIN, ntop=len(self.tops))
        for name, top in zip(self.tops, made if isinstance(made, tuple) else (made,), strict=True):
            n[name] = top
        # Both layers make the same blobs, each in its phase; so this one's tops cannot have names of their own.
        n["data (test)"] = layer("test", test, TEST, ntop=0, top=list(self.tops))
        last: Top = n[self.tops[-1]]
        return last


def caffenet(n: NetSpec, label: Top | None) -> None:
    top = n.data
    ones = {"type": "constant", "value": 1}
    convolutions = [
        (96, {"kernel_size": 11, "stride": 4}, {}),
        (256, {"kernel_size": 5, "pad": 2, "group": 2}, {"bias_filler": ones}),
        (384, {"kernel_size": 3, "pad": 1}, {}),
        (384, {"kernel_size": 3, "pad": 1, "group": 2}, {"bias_filler": ones}),
        (256, {"kernel_size": 3, "pad": 1, "group": 2}, {"bias_filler": ones}),
    ]
    for index, (channels, window, bias) in enumerate(convolutions, 1):
        filler = {"type": "gaussian", "std": 0.01}
        n[f"conv{index}"] = L.Convolution(
            top, num_output=channels, **window, weight_filler=filler, **bias, param=WEIGHT_AND_BIAS
        )
        top = n[f"relu{index}"] = L.ReLU(n[f"conv{index}"], in_place=True)
        if index in (1, 2, 5):
            top = n[f"pool{index}"] = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=3, stride=2)
        if index in (1, 2):
            top = n[f"norm{index}"] = L.LRN(top, local_size=5, alpha=0.0001, beta=0.75)
    for index in (6, 7):
        filler = {"type": "gaussian", "std": 0.005}
        n[f"fc{index}"] = L.InnerProduct(
            top, num_output=4096, weight_filler=filler, bias_filler=ones, param=WEIGHT_AND_BIAS
        )
        n[f"relu{index}"] = L.ReLU(n[f"fc{index}"], in_place=True)
        top = n[f"drop{index}"] = L.Dropout(n[f"relu{index}"], dropout_ratio=0.5, in_place=True)
    n.fc8 = L.InnerProduct(top, num_output=1000, weight_filler={"type": "gaussian", "std": 0.01}, param=WEIGHT_AND_BIAS)
    classify(n, n.fc8, label)


def autoencoder(n: NetSpec, digits: Top | None) -> None:
    sparse = {"type": "gaussian", "std": 1, "sparse": 15}
    if digits is not None:
        n.flatdata = L.Flatten(digits)
    top = n.data if digits is None else digits
    order = [("encode1", 1000), ("encode2", 500), ("encode3", 250), ("encode4", 30)]
    order += [("decode4", 250), ("decode3", 500), ("decode2", 1000), ("decode1", 784)]
    for name, outputs in order:
        top = n[name] = L.InnerProduct(top, num_output=outputs, weight_filler=sparse, param=WEIGHT_ONLY)
        if name not in ("encode4", "decode1"):
            top = n[f"{name}neuron"] = L.Sigmoid(top)
    if digits is None:
        n.decode1neuron = L.Sigmoid(top)
        return
    n.cross_entropy_loss = L.SigmoidCrossEntropyLoss(top, n.flatdata, loss_weight=1, name="loss")
    n.decode1neuron = L.Sigmoid(top)
    n.l2_error = L.EuclideanLoss(n.decode1neuron, n.flatdata, loss_weight=0, name="loss")


def siamese(n: NetSpec, similar: Top | None) -> None:
    if similar is not None:
        n.data, n.data_p = L.Slice(n.pair_data, name="slice_pair", slice_dim=1, slice_point=1, ntop=2)
    for end in ("",) if similar is None else ("", "_p"):
        top = n[f"data{end}"]

        def shared(layer: str) -> dict[str, object]:
            names = [{"name": f"{layer}_w", "lr_mult": 1}, {"name": f"{layer}_b", "lr_mult": 2}]
            return {"weight_filler": {"type": "xavier"}, "param": names}

        for index, channels in ((1, 20), (2, 50)):
            conv = L.Convolution(top, num_output=channels, kernel_size=5, **shared(f"conv{index}"))
            n[f"conv{index}{end}"] = conv
            top = n[f"pool{index}{end}"] = L.Pooling(conv, pool=P.Pooling.MAX, kernel_size=2, stride=2)
        n[f"ip1{end}"] = L.InnerProduct(top, num_output=500, **shared("ip1"))
        n[f"relu1{end}"] = L.ReLU(n[f"ip1{end}"], in_place=True)
        n[f"ip2{end}"] = L.InnerProduct(n[f"relu1{end}"], num_output=10, **shared("ip2"))
        n[f"feat{end}"] = L.InnerProduct(n[f"ip2{end}"], num_output=2, **shared("feat"))
    if similar is not None:
        n.loss = L.ContrastiveLoss(n.feat, n.feat_p, similar, margin=1)


ABOUT_CAFFENET = """
CaffeNet on ImageNet: AlexNet with the pooling before the normalisation.

Caffe's reference model, whose weights fit. 60,965,224 parameters, 1.4 GFLOP an image. Trained by solver.prototxt it
gets about 57 % of the validation images right, 80 % in its first five guesses.

The LMDBs hold colour images of 256x256 pixels. To try it without ImageNet: scripts/make_synthetic.py data/imagenet
--shape 3x256x256 makes train_lmdb and test_lmdb; tools/compute_image_mean.py makes the mean of them.
"""

ABOUT_AUTOENCODER = """
An autoencoder of handwritten digits: 784 pixels to 30 numbers and back.

From Hinton and Salakhutdinov, "Reducing the dimensionality of data with neural networks", 2006, in the shape of Caffe's
example, which trains all of it at once. 2,837,314 parameters, 5.7 MFLOP an image. It is trained by the cross entropy
of the pixels; l2_error is only shown.

The digits are scikit-learn's; for MNIST let the two sources be data/mnist/train_lmdb and data/mnist/test_lmdb.
"""

ABOUT_SIAMESE = """
Two LeNets that share all their weights, and learn to put digits into a plane: equal ones near, others apart.

From Hadsell, Chopra and LeCun, "Dimensionality reduction by learning an invariant mapping", 2006, as Caffe's example
mnist_siamese has it. 431,102 parameters, 9.2 MFLOP a pair.

An image of the LMDBs holds the two digits of a pair as its two channels; its label is 1 if they are equal. Written by
scripts/make_pairs.py.
"""

SOLVER_CAFFENET = imagenet_solver(
    "caffenet",
    "Trains CaffeNet on ImageNet: 90 epochs of 5,005 batches of 256.",
    """\
    test_interval: 1000

    base_lr: 0.01
    lr_policy: "step"     # a tenth of the rate every 20 epochs
    gamma: 0.1
    stepsize: 100000
    momentum: 0.9
    weight_decay: 0.0005

    max_iter: 450000
    display: 20
    snapshot: 10000
    """,
)

SOLVER_AUTOENCODER = solver(
    """Trains the autoencoder on the digits, in a minute on two cores. The error of an image, half the sum of its
    squared differences, falls from about 110 to 4.\n\n    bpt train --solver prototxt/mnist_autoencoder/solver.prototxt
    """.strip(),
    """\
    net: "prototxt/mnist_autoencoder/train_val.prototxt"

    test_iter: 4          # 4 batches of 90: the whole test set
    test_interval: 500
    test_compute_loss: true

    base_lr: 0.01
    lr_policy: "step"
    gamma: 0.1
    stepsize: 2500
    momentum: 0.9
    weight_decay: 0.0005

    max_iter: 3000
    display: 100
    snapshot: 3000
    snapshot_prefix: "snapshots/mnist_autoencoder/mnist_autoencoder"
    solver_mode: CPU
    """,
)

SOLVER_SIAMESE = solver(
    """Trains the siamese net on pairs of digits, in a minute on two cores.

    bpt train --solver prototxt/mnist_siamese/solver.prototxt""",
    """\
    net: "prototxt/mnist_siamese/train_val.prototxt"

    test_iter: 16         # 16 batches of 90: all 1,440 pairs of test digits
    test_interval: 250

    base_lr: 0.01
    lr_policy: "inv"
    gamma: 0.0001
    power: 0.75
    momentum: 0.9
    weight_decay: 0

    max_iter: 1500
    display: 100
    snapshot: 1500
    snapshot_prefix: "snapshots/mnist_siamese/mnist_siamese"
    solver_mode: CPU
    """,
)


IMAGENET_227 = DataSet("data/imagenet", "val_lmdb", 227, {"mean_file": "data/imagenet/mean.binaryproto"})
DIGITS = Digits("data/digits", ("data",))
PAIRS = Digits("data/digit_pairs", ("pair_data", "sim"))
NETWORKS = [
    Network("caffenet", "CaffeNet", ABOUT_CAFFENET, caffenet, IMAGENET_227, (256, 25),
            {"solver.prototxt": SOLVER_CAFFENET}),
    Network("mnist_autoencoder", "MNISTAutoencoder", ABOUT_AUTOENCODER, autoencoder, DIGITS, (100, 90),
            {"solver.prototxt": SOLVER_AUTOENCODER}, answers="the restored image"),
    Network("mnist_siamese", "mnist_siamese_train_test", ABOUT_SIAMESE, siamese, PAIRS, (64, 90),
            {"solver.prototxt": SOLVER_SIAMESE}, answers="points in a plane"),
]  # fmt: skip
