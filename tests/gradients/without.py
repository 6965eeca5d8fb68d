"""A case of each layer type that computes and has no gradient, and why."""

from __future__ import annotations

import torch

from tests.gradients.cases import Case, body

SHAPE = (5, 3, 4)
BLOB = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
LABELS = torch.tensor([0, 2, 1, 1, 0], dtype=torch.float64).reshape(5, 1).expand(5, 4)
REGIONS = torch.tensor([[0, 0, 0, 3, 3], [0, 2, 1, 5, 6], [1, 1, 1, 4, 2], [1, 0, 0, 9, 9], [0, 4, 4, 6, 6]]).double()

CASES_WITHOUT = {
    "Accuracy": Case(body("Accuracy"), (BLOB, LABELS)),
    "ArgMax": Case(body("ArgMax"), (BLOB,)),
    "BoxAnnotatorOHEM": Case(
        body("BoxAnnotatorOHEM", "box_annotator_ohem_param", roi_per_img=1),
        (REGIONS, BLOB[:, 0, 0], LABELS[:, 0], BLOB[:, :, 0]),
        tops=2,
    ),
    "SegAccuracy": Case(body("SegAccuracy"), (BLOB.unsqueeze(3), LABELS.unsqueeze(1))),
    "Threshold": Case(body("Threshold"), (BLOB,)),
}
WHY = {
    "Accuracy": "counts",
    "ArgMax": "gives indices",
    "BoxAnnotatorOHEM": "chooses labels",
    "SegAccuracy": "counts",
    "Threshold": "is constant but for a jump; it never runs backward",
}
