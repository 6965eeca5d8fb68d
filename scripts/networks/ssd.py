"""A single shot detector of shapes, small enough for a CPU."""

from __future__ import annotations

from typing import Any

from bpt.caffe.netspec import L, NetSpec, P, Top
from scripts.networks.common import TEST, TRAIN, Network, solver

SIDE = 64
CLASSES = 4  # the background, and three shapes
MSRA = {"type": "msra"}
ASPECTS = [2]
# Of each map that boxes are told from: its name, the sizes of its boxes in pixels, and how far its places are apart.
MAPS = (("relu3", 14, 22, 8), ("relu4", 22, 34, 16))
BOXES = 4  # at each place: two squares, one wide, one high
SHARED = {"num_classes": CLASSES, "share_location": True, "background_label_id": 0, "code_type": P.PriorBox.CENTER_SIZE}
TRANSFORM = {"mean_value": 128, "scale": 1 / 64}


class Shapes:
    """Pictures of shapes and the boxes of these, from scripts/make_boxes.py."""

    kind = f"colour images, {SIDE}×{SIDE}"

    def feed(self, n: NetSpec) -> None:
        n.data = L.Input(shape={"dim": [1, 3, SIDE, SIDE]})

    def read(self, n: NetSpec, train: int, test: int) -> Top:
        label: Top
        n.data, label = self._layer("train", train, ntop=2)
        n.label = label
        n["data (test)"] = self._layer("test", test, ntop=0, top=["data", "label"])
        return label

    def _layer(self, part: str, batch: int, **tops: object) -> Any:
        drawn = {
            "mirror": True,
            "distort_param": {"brightness_prob": 0.5, "brightness_delta": 32, "contrast_prob": 0.5,
                              "contrast_lower": 0.7, "contrast_upper": 1.3},
            "expand_param": {"prob": 0.3, "max_expand_ratio": 1.5},
            "emit_constraint": {"emit_type": P.EmitConstraint.CENTER},
        }  # fmt: skip
        resize = {"resize_param": {"height": SIDE, "width": SIDE}}
        samplers = [{"max_sample": 1, "max_trials": 1}, {
            "max_sample": 1, "max_trials": 20,
            "sampler": {"min_scale": 0.6, "min_aspect_ratio": 0.7, "max_aspect_ratio": 1.4},
            "sample_constraint": {"min_object_coverage": 0.9},
        }]  # fmt: skip
        source = {"source": f"data/boxes/{part}_lmdb", "batch_size": batch, "backend": P.Data.LMDB}
        trains = part == "train"
        if not trains:
            return L.AnnotatedData(
                name="data", include=TEST, transform_param=TRANSFORM | resize, data_param=source, **tops
            )
        return L.AnnotatedData(
            name="data", include=TRAIN, transform_param=TRANSFORM | drawn | resize,
            data_param=source | {"shuffle": True}, annotated_data_param={"batch_sampler": samplers}, **tops,
        )  # fmt: skip


def build(n: NetSpec, label: Top | None) -> None:
    top = n.data
    for stage, channels in enumerate((16, 32, 64, 64), 1):
        n[f"conv{stage}"] = L.Convolution(
            top, num_output=channels, kernel_size=3, pad=1, stride=2, bias_term=False, weight_filler=MSRA
        )
        n[f"bn{stage}"] = L.BatchNorm(n[f"conv{stage}"], in_place=True)
        n[f"scale{stage}"] = L.Scale(n[f"bn{stage}"], bias_term=True, in_place=True)
        top = n[f"relu{stage}"] = L.ReLU(n[f"scale{stage}"], in_place=True)
    offsets, scores, priors = [], [], []
    for name, smallest, largest, step in MAPS:
        offsets.append(_told(n, n[name], f"{name}_loc", BOXES * 4))
        scores.append(_told(n, n[name], f"{name}_conf", BOXES * CLASSES))
        n[f"{name}_priorbox"] = L.PriorBox(
            n[name], n.data, min_size=[smallest], max_size=[largest], aspect_ratio=ASPECTS, flip=True, step=step,
            variance=[0.1, 0.1, 0.2, 0.2],
        )  # fmt: skip
        priors.append(n[f"{name}_priorbox"])
    n.mbox_loc, n.mbox_conf = L.Concat(*offsets, axis=1), L.Concat(*scores, axis=1)
    n.mbox_priorbox = L.Concat(*priors, axis=2)
    found = {} if label is None else {"include": TEST}
    n.mbox_conf_reshape = L.Reshape(n.mbox_conf, shape={"dim": [0, -1, CLASSES]}, **found)
    n.mbox_conf_softmax = L.Softmax(n.mbox_conf_reshape, axis=2, **found)
    n.mbox_conf_flatten = L.Flatten(n.mbox_conf_softmax, axis=1, **found)
    n.detection_out = L.DetectionOutput(
        n.mbox_loc, n.mbox_conf_flatten, n.mbox_priorbox, **found,
        detection_output_param=SHARED | {"nms_param": {"nms_threshold": 0.45, "top_k": 100}, "keep_top_k": 20,
                                         "confidence_threshold": 0.05},
    )  # fmt: skip
    if label is None:
        return
    n.mbox_loss = L.MultiBoxLoss(
        n.mbox_loc, n.mbox_conf, n.mbox_priorbox, label, multibox_loss_param=SHARED, include=TRAIN,
        propagate_down=[True, True, False, False],
    )  # fmt: skip
    n.detection_eval = L.DetectionEvaluate(
        n.detection_out, label, num_classes=CLASSES, overlap_threshold=0.5, include=TEST
    )


def _told(n: NetSpec, bottom: Top, name: str, channels: int) -> Top:
    """What a convolution tells of each place's boxes, place by place in one axis."""
    n[name] = L.Convolution(bottom, num_output=channels, kernel_size=3, pad=1, weight_filler=MSRA)
    n[f"{name}_perm"] = L.Permute(n[name], order=[0, 2, 3, 1])
    flat: Top = L.Flatten(n[f"{name}_perm"], axis=1)
    n[f"{name}_flat"] = flat
    return flat


ABOUT = """
A single shot detector that finds circles, squares and triangles in pictures.

After Liu et al., "SSD: Single Shot MultiBox Detector", 2016, made small: four convolutions of stride 2; offsets and
scores of four boxes at each place of maps of 8 × 8 and 4 × 4; the data augmented by patches that are drawn, expansion,
distorted colours and mirrors.

The LMDBs of AnnotatedDatum records are made by scripts/make_boxes.py.
"""

SOLVER = solver(
    """Trains the net on shapes, in minutes on two cores.

    bpt train --solver prototxt/ssd_shapes/solver.prototxt""",
    """\
    net: "prototxt/ssd_shapes/train_val.prototxt"

    test_iter: 10         # 10 batches of 20: all 200
    test_interval: 500
    eval_type: "detection"
    ap_version: "11point"

    base_lr: 0.003
    type: "Adam"
    momentum: 0.9
    momentum2: 0.999
    lr_policy: "poly"
    power: 1
    weight_decay: 0.0001

    max_iter: 2000
    display: 100
    average_loss: 20
    snapshot: 2000
    snapshot_prefix: "snapshots/ssd_shapes/ssd_shapes"
    solver_mode: CPU
    """,
)

NETWORKS = [
    Network("ssd_shapes", "SSD", ABOUT, build, Shapes(), (16, 20), {"solver.prototxt": SOLVER},
            answers="the boxes of what it has found"),
]  # fmt: skip
