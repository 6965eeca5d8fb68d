"""A net that detects objects, with annotated images of its own, for tests of what is reported of detections."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.lmdbs import write_annotated

# Each image has four places; the net sees an object of either label in the first three, with the same scores.
NET = """
layer {{ name: "in" type: "AnnotatedData" top: "data" top: "label" data_param {{ source: "{}" batch_size: 4 }} }}
layer {{ name: "dummy" type: "DummyData" top: "map" top: "loc" top: "conf"
  dummy_data_param {{ shape {{ dim: 4 dim: 1 dim: 2 dim: 2 }} shape {{ dim: 4 dim: 16 }} shape {{ dim: 4 dim: 12 }}
    data_filler {{ type: "constant" }} data_filler {{ type: "constant" }}
    data_filler {{ type: "constant" value: 0.5 }} }} }}
layer {{ name: "priors" type: "PriorBox" bottom: "map" bottom: "data" top: "priors" prior_box_param {{ min_size: 4 }} }}
layer {{ name: "found" type: "DetectionOutput" bottom: "loc" bottom: "conf" bottom: "priors" top: "found"
  detection_output_param {{ num_classes: 3 nms_param {{ top_k: 3 }} }} }}
layer {{ name: "eval" type: "DetectionEvaluate" bottom: "found" bottom: "label" top: "detection_eval"
  detection_evaluate_param {{ num_classes: 3 }} }}
"""


def detecting_net(folder: Path) -> str:
    """Return the text of the net; its eight images are written to ``folder``."""
    places = [(0, 0, 0.5, 0.5), (0.5, 0, 1, 0.5), (0, 0.5, 0.5, 1), (0.5, 0.5, 1, 1)]
    objects = [[(1 + (index == 5), 0, *places[index % 4], 0)] for index in range(8)]
    images = [np.zeros((1, 8, 8), np.uint8)] * 8
    return NET.format(write_annotated(folder / "boxes", images, [np.array(own) for own in objects]))
