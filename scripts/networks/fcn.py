"""A fully convolutional net that gives each pixel a class, with a skip connection."""

from __future__ import annotations

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import TEST, TRAIN, Network, solver

SIDE = 50
CLASSES = 4  # the background, and three shapes
EDGE = 255  # the label of pixels that do not count
MSRA = {"type": "msra"}


class Shapes:
    """Pictures of shapes and, apart, the classes of their pixels, from scripts/make_shapes.py."""

    kind = "colour images of any size"

    def feed(self, n: NetSpec) -> None:
        n.data = L.Input(shape={"dim": [1, 3, SIDE, SIDE]})

    def read(self, n: NetSpec, train: int, test: int) -> Top:
        transforms = {"images": {"mean_value": 128, "scale": 1 / 64}, "labels": {"scale": 1}}

        def layer(name: str, what: str, part: str, batch: int, **tops: object) -> Top:
            source = {"source": f"data/shapes/{part}_{what}_lmdb", "batch_size": batch, "backend": P.Data.LMDB}
            made: Top = L.Data(
                name=name, include=TRAIN if part == "train" else TEST, transform_param=transforms[what],
                data_param=source, **tops,
            )  # fmt: skip
            return made

        for top, what in (("data", "images"), ("label", "labels")):
            n[top] = layer(top, what, "train", train)
            # Both layers make the same blob, each in its phase; so this one's top cannot have a name of its own.
            n[f"{top} (test)"] = layer(top, what, "test", test, ntop=0, top=[top])
        label: Top = n.label
        return label


def build(n: NetSpec, label: Top | None) -> None:
    top = n.data
    for stage, channels in enumerate((16, 32, 64), 1):
        for part in (1, 2):
            name = f"{stage}_{part}"
            n[f"conv{name}"] = L.Convolution(
                top, num_output=channels, kernel_size=3, pad=1, weight_filler=MSRA, bias_filler={"type": "constant"}
            )
            top = n[f"relu{name}"] = L.ReLU(n[f"conv{name}"], in_place=True)
        top = n[f"pool{stage}"] = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    n.fc4 = L.Convolution(top, num_output=128, kernel_size=3, pad=1, weight_filler=MSRA)
    n.relu4 = L.ReLU(n.fc4, in_place=True)
    n.drop4 = L.Dropout(n.relu4, dropout_ratio=0.5, in_place=True)
    n.score_fr = _score(n.drop4)
    # Twice as large, which is a little more than pool2; the crop lays the pixels' centres on each other.
    n.upscore2 = _enlarged(n.score_fr, 2)
    n.score_pool2 = _score(n.pool2)
    n.upscore2c = L.Crop(n.upscore2, n.score_pool2, axis=2, offset=1)
    n.fuse_pool2 = L.Eltwise(n.upscore2c, n.score_pool2, operation=P.Eltwise.SUM)
    n.upscore4 = _enlarged(n.fuse_pool2, 4)
    n.score = L.Crop(n.upscore4, n.data, axis=2, offset=2)
    if label is None:
        n.prob = L.Softmax(n.score)
        return
    n.loss = L.SoftmaxWithLoss(n.score, label, loss_param={"ignore_label": EDGE})
    n.accuracy = L.Accuracy(n.score, label, ignore_label=EDGE, include=TEST)


def _score(bottom: Top) -> Top:
    filler = {"type": "gaussian", "std": 0.01}
    scores: Top = L.Convolution(bottom, num_output=CLASSES, kernel_size=1, weight_filler=filler)
    return scores


def _enlarged(bottom: Top, times: int) -> Top:
    """Bilinearly, class by class; the weights stay as they are."""
    enlarged: Top = L.Deconvolution(
        bottom,
        param=[{"lr_mult": 0}],
        convolution_param={
            "num_output": CLASSES, "group": CLASSES, "kernel_size": 2 * times, "stride": times, "bias_term": False,
            "weight_filler": {"type": "bilinear"},
        },
    )  # fmt: skip
    return enlarged


ABOUT = """
A fully convolutional net that tells circles, squares, triangles and the background apart, pixel by pixel.

After Shelhamer, Long and Darrell, "Fully convolutional networks for semantic segmentation", 2017, made small: seven
convolutions, scores at an eighth of the size, twice enlarged by a bilinear Deconvolution, with a skip connection from
pool2, and cropped to the image. 146,904 parameters, 57 MFLOP an image.

Images and classes are records of the same number in two LMDBs, made by scripts/make_shapes.py. The edges of the shapes
are labelled 255 and do not count.
"""

SOLVER = solver(
    """Trains the net on shapes, in a minute on two cores, until 97 % of the pixels come out right.

    bpt train --solver prototxt/fcn_shapes/solver.prototxt""",
    """\
    net: "prototxt/fcn_shapes/train_val.prototxt"

    test_iter: 10         # 10 batches of 20: all 200
    test_interval: 200

    base_lr: 0.003
    type: "Adam"
    momentum: 0.9
    momentum2: 0.999
    lr_policy: "poly"
    power: 1
    weight_decay: 0.0001

    max_iter: 1000
    display: 100
    average_loss: 20
    snapshot: 1000
    snapshot_prefix: "snapshots/fcn_shapes/fcn_shapes"
    solver_mode: CPU
    """,
)

NETWORKS = [
    Network("fcn_shapes", "FCN", ABOUT, build, Shapes(), (16, 20), {"solver.prototxt": SOLVER},
            answers="probabilities of each pixel's classes"),
]  # fmt: skip
