"""A recurrent convolutional net that tells what happens in a clip."""

from __future__ import annotations

from bpt.caffe.netspec import L, NetSpec, Top
from scripts.networks.common import TEST, TRAIN, Network, solver

FRAMES, CLIPS, SIDE = 8, 16, 20  # as scripts/make_clips.py writes them
CLASSES = 4
UNKNOWN = -1  # the label of first frames
XAVIER = {"type": "xavier"}


class Moves:
    """Clips of a moving blob, from scripts/make_clips.py. A batch is FRAMES x CLIPS frames, however many are asked."""

    kind = f"{FRAMES} frames of a clip, and where clips begin"

    def feed(self, n: NetSpec) -> None:
        n.data = L.Input(shape={"dim": [FRAMES, 1, SIDE, SIDE]})
        n.cont = L.Input(shape={"dim": [FRAMES]})

    def read(self, n: NetSpec, train: int, test: int) -> Top:
        n.data, n.cont, n.label = L.HDF5Data(
            name="data", ntop=3, include=TRAIN, source="data/clips/train.txt", batch_size=train
        )
        # Both layers make the same blobs, each in its phase; so this one's tops cannot have names of their own.
        n["data (test)"] = L.HDF5Data(
            name="data", ntop=0, top=["data", "cont", "label"], include=TEST, source="data/clips/test.txt",
            batch_size=test,
        )  # fmt: skip
        label: Top = n.label
        return label


def build(n: NetSpec, label: Top | None) -> None:
    n.conv1 = L.Convolution(n.data, num_output=8, kernel_size=5, stride=2, weight_filler=XAVIER)
    n.relu1 = L.ReLU(n.conv1, in_place=True)
    n.conv2 = L.Convolution(n.relu1, num_output=16, kernel_size=3, stride=2, weight_filler=XAVIER)
    n.relu2 = L.ReLU(n.conv2, in_place=True)
    n.fc3 = L.InnerProduct(n.relu2, num_output=64, weight_filler=XAVIER)
    n.relu3 = L.ReLU(n.fc3, in_place=True)
    # From frames one behind the other to (frames, clips, features), as recurrent layers read them.
    n.frames = L.Reshape(n.relu3, shape={"dim": [FRAMES, -1, 64]})
    n.marks = L.Reshape(n.cont, shape={"dim": [FRAMES, -1]})
    n.lstm1 = L.LSTM(
        n.frames, n.marks,
        recurrent_param={"num_output": 64, "weight_filler": XAVIER, "bias_filler": {"type": "constant"}},
    )  # fmt: skip
    n.fc4 = L.InnerProduct(n.lstm1, num_output=CLASSES, axis=2, weight_filler=XAVIER)
    if label is None:
        n.prob = L.Softmax(n.fc4, axis=2)
        return
    n.classes = L.Reshape(label, shape={"dim": [FRAMES, -1]})
    ignored = {"ignore_label": UNKNOWN}
    n.loss = L.SoftmaxWithLoss(n.fc4, n.classes, softmax_param={"axis": 2}, loss_param=ignored)
    n.accuracy = L.Accuracy(n.fc4, n.classes, axis=2, **ignored, include=TEST)


ABOUT = """
A recurrent convolutional net that tells in which direction a blob moves.

After Donahue et al., "Long-term recurrent convolutional networks for visual recognition and description", 2015, made
small: two convolutions see each frame, an LSTM of 64 cells sees what they make of one frame after the other, and each
frame's direction is told. 43,940 parameters, 0.13 MFLOP a frame.

The HDF5 files are made by scripts/make_clips.py data/clips. A batch has 8 frames of 16 clips: first all first frames,
then all second ones. cont is 0 where a clip begins. Of a first frame nobody can tell where the blob will go: its label
is -1, which does not count.
"""

SOLVER = solver(
    """Trains the net on clips, in ten seconds, until it knows nearly all directions.

    bpt train --solver prototxt/lrcn_moves/solver.prototxt""",
    """\
    net: "prototxt/lrcn_moves/train_val.prototxt"

    test_iter: 20         # 20 batches of 16 clips: all 320
    test_interval: 200

    base_lr: 0.1
    lr_policy: "step"
    gamma: 0.1
    stepsize: 600
    momentum: 0.9
    clip_gradients: 5     # of all parameters together, as is usual with recurrent layers

    max_iter: 800
    display: 100
    snapshot: 800
    snapshot_prefix: "snapshots/lrcn_moves/lrcn_moves"
    solver_mode: CPU
    """,
)

NETWORKS = [
    Network("lrcn_moves", "LRCN", ABOUT, build, Moves(), (FRAMES * CLIPS, FRAMES * CLIPS),
            {"solver.prototxt": SOLVER}, answers="probabilities of each frame's directions"),
]  # fmt: skip
