"""Layers that join, cut or judge blobs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.layers import Layer
from tests.support.one_layer import one_layer, randomise
from tests.support.paths import GOLDEN

SHAPE = (6, 4, 3, 2)


INFOGAIN = f'type: "InfogainLoss" infogain_loss_param {{ source: "{GOLDEN / "layers/infogain_H_dev.binaryproto"}" }}'


@dataclass(frozen=True)
class Case:
    """A layer's text, how many blobs of ``shape`` it reads before labels (if ``labels``), and its tops."""

    body: str
    blobs: int = 1
    labels: bool = False
    tops: int = 1
    shape: tuple[int, ...] = SHAPE

    def layer(self, samples: int | None = None, phase: int = pb.TRAIN) -> Layer:
        """The layer for batches of ``samples``; its parameters are numbers in [0.5, 1.5)."""
        samples = self.shape[0] if samples is None else samples
        shapes = [(samples, *self.shape[1:])] * self.blobs + [(samples, *self.shape[2:])] * self.labels
        return randomise(one_layer(self.body, *shapes, tops=self.tops, phase=phase))

    def bottoms(self, samples: int | None = None) -> tuple[Tensor, ...]:
        samples = self.shape[0] if samples is None else samples
        generator = torch.Generator().manual_seed(samples)
        blobs = tuple(torch.rand(samples, *self.shape[1:], generator=generator) for _ in range(self.blobs))
        labels = torch.randint(0, self.shape[1], (samples, *self.shape[2:]), generator=generator).float()
        return (*blobs, labels) if self.labels else blobs


CASES = {
    "sum": Case('type: "Eltwise"', blobs=3),
    "weighted sum": Case('type: "Eltwise" eltwise_param { coeff: 2 coeff: -1 }', blobs=2),
    "product": Case('type: "Eltwise" eltwise_param { operation: PROD }', blobs=3),
    "divided product": Case('type: "Eltwise" eltwise_param { operation: PROD stable_prod_grad: false }', blobs=2),
    "maximum": Case('type: "Eltwise" eltwise_param { operation: MAX }', blobs=3),
    "concat": Case('type: "Concat"', blobs=2),
    "concat, last axis": Case('type: "Concat" concat_param { axis: -1 }', blobs=2),
    "slice": Case('type: "Slice"', tops=2),
    "slice at points": Case('type: "Slice" slice_param { axis: 1 slice_point: 1 }', tops=2),
    "split": Case('type: "Split"', tops=3),
    "flatten": Case('type: "Flatten"'),
    "flatten, middle": Case('type: "Flatten" flatten_param { axis: 1 end_axis: 2 }'),
    "mvn": Case('type: "MVN"'),
    "mvn across channels": Case('type: "MVN" mvn_param { across_channels: true eps: 0.1 }'),
    "mvn, mean only": Case('type: "MVN" mvn_param { normalize_variance: false }'),
    "argmax": Case('type: "ArgMax" argmax_param { top_k: 3 out_max_val: true }'),
    "argmax along an axis": Case('type: "ArgMax" argmax_param { axis: 1 }'),
    "threshold": Case('type: "Threshold" threshold_param { threshold: 0.5 }'),
    "reduction": Case('type: "Reduction" reduction_param { axis: 2 operation: MEAN coeff: 2 }'),
    "reduction of a sample": Case('type: "Reduction" reduction_param { axis: 1 operation: SUMSQ }'),
    "reduction of all": Case('type: "Reduction" reduction_param { operation: MEAN coeff: 3 }'),
    "softmax": Case('type: "Softmax"'),
    "softmax, last axis": Case('type: "Softmax" softmax_param { axis: -1 }'),
    "softmax loss": Case('type: "SoftmaxWithLoss"', labels=True),
    "softmax loss, two tops": Case('type: "SoftmaxWithLoss" loss_param { ignore_label: 1 }', labels=True, tops=2),
    "infogain loss": Case(INFOGAIN, labels=True),
    "infogain loss, two tops": Case(f"{INFOGAIN} loss_param {{ ignore_label: 1 }}", labels=True, tops=2),
    "euclidean loss": Case('type: "EuclideanLoss"', blobs=2),
    "accuracy": Case('type: "Accuracy"', labels=True),
    "accuracy of classes": Case('type: "Accuracy" accuracy_param { ignore_label: 1 top_k: 2 }', labels=True, tops=2),
}
