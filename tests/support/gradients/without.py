"""A case of each layer type that computes and has no gradient, and why."""

from __future__ import annotations

import torch

from tests.support.gradients.cases import Case, body

SHAPE = (5, 3, 4)
BLOB = torch.rand(SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
LABELS = torch.tensor([0, 2, 1, 1, 0], dtype=torch.float64).reshape(5, 1).expand(5, 4)
SIZE = torch.tensor([[200.0, 200, 1]], dtype=torch.float64)
REGIONS = torch.tensor([[0, 0, 0, 3, 3], [0, 2, 1, 5, 6], [1, 1, 1, 4, 2], [1, 0, 0, 9, 9], [0, 4, 4, 6, 6]]).double()

_MAP, _IMAGES = torch.zeros(2, 8, 2, 3, dtype=torch.float64), torch.zeros(2, 3, 20, 30, dtype=torch.float64)
_CORNERS = torch.tensor([[0.1, 0.1, 0.5, 0.5], [0.4, 0.3, 0.9, 0.8]], dtype=torch.float64)
_PRIORS = torch.stack((_CORNERS, torch.full_like(_CORNERS, 0.1))).reshape(1, 2, 8)
_SCORES = torch.tensor([[0.1, 0.9, 0.7, 0.3], [0.6, 0.4, 0.2, 0.8]], dtype=torch.float64)
_FOUND = torch.tensor([[0, 1, 0.9, 0.1, 0.1, 0.5, 0.5], [1, 1, 0.8, 0.4, 0.3, 0.9, 0.8]], dtype=torch.float64)
_OBJECTS = torch.tensor([[0, 1, 0, 0.1, 0.1, 0.5, 0.6, 0]], dtype=torch.float64)

CASES_WITHOUT = {
    "Accuracy": Case(body("Accuracy"), (BLOB, LABELS)),
    "ArgMax": Case(body("ArgMax"), (BLOB,)),
    "BoxAnnotatorOHEM": Case(
        body("BoxAnnotatorOHEM", "box_annotator_ohem_param", roi_per_img=1),
        (REGIONS, BLOB[:, 0, 0], LABELS[:, 0], BLOB[:, :, 0]),
        tops=2,
    ),
    "DetectionEvaluate": Case(
        body("DetectionEvaluate", "detection_evaluate_param", num_classes=2), (_FOUND[None, None], _OBJECTS[None, None])
    ),
    "DetectionOutput": Case(
        body("DetectionOutput", "detection_output_param", num_classes=2, code_type="CENTER_SIZE"),
        (BLOB.flatten()[:16].reshape(2, 8), _SCORES, _PRIORS),
    ),
    "Nms": Case(body("Nms", "nms_param", num_parts=2, max_peaks=2, threshold=0.2), (BLOB[None].expand(2, 5, 3, 4),)),
    "PriorBox": Case(body("PriorBox", "prior_box_param", min_size=5, aspect_ratio=2), (_MAP, _IMAGES)),
    "Proposal": Case(
        body("Proposal", "proposal_param", feat_stride=4, anchor_base_size=4, anchor_scale=1, anchor_ratio=1),
        (BLOB[:1, :2].reshape(1, 2, 2, 2), BLOB[:2, :2].reshape(1, 4, 2, 2), SIZE),
        tops=2,
        shapes_by_data=True,
    ),
    "SegAccuracy": Case(body("SegAccuracy"), (BLOB.unsqueeze(3), LABELS.unsqueeze(1))),
    "Threshold": Case(body("Threshold"), (BLOB,)),
}
WHY = {
    "Accuracy": "counts",
    "ArgMax": "gives indices",
    "BoxAnnotatorOHEM": "chooses labels",
    "DetectionEvaluate": "counts",
    "DetectionOutput": "gives what it has found",
    "Nms": "chooses places",
    "PriorBox": "makes of shapes alone",
    "Proposal": "chooses boxes",
    "SegAccuracy": "counts",
    "Threshold": "is constant but for a jump; it never runs backward",
}
