"""A data layer as the authors of FCN write theirs: pictures of changing size, one at a time, for pycaffe."""

from __future__ import annotations

from typing import Any

import caffe
import numpy as np


class Segments(caffe.Layer):
    def setup(self, bottom: Any, top: Any) -> None:
        params = eval(self.param_str)
        self.shape, self.classes = params["shape"], params["classes"]
        self.random = np.random.default_rng(1)
        if len(top) != 2 or len(bottom) != 0:
            raise Exception("Need to define two tops: data and label.")

    def reshape(self, bottom: Any, top: Any) -> None:
        height, width = (side + int(self.random.integers(3)) for side in self.shape)
        self.data = self.random.normal(0, 1, (3, height, width))
        self.label = self.random.integers(0, self.classes, (1, height, width)).astype(float)
        self.label[:, :2] = 255
        top[0].reshape(1, *self.data.shape)
        top[1].reshape(1, *self.label.shape)

    def forward(self, bottom: Any, top: Any) -> None:
        top[0].data[...] = self.data
        top[1].data[...] = self.label

    def backward(self, top: Any, propagate_down: Any, bottom: Any) -> None:
        pass
