"""pycaffe's calls with odd arguments: each raises a UserError that says what is wanted, not an error of a library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import bpt
from bpt import caffe
from bpt.base.errors import BptError, UserError

NET = """
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "c" type: "Convolution" bottom: "data" top: "c" convolution_param { num_output: 2 kernel_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "c" top: "y" inner_product_param { num_output: 2 } }
"""
IMAGE = np.zeros((4, 4, 3), np.float32)
ODD: list[Any] = [
    None, -1, 1.5, "x", "", b"x", [], {}, [None], [[1, 2], [3]], np.zeros(0), np.zeros((2, 2)),
    np.zeros((4, 4, 1), np.float32), IMAGE, np.zeros((1, 3, 4, 4), np.float32), np.array("a"), object(), float("nan"),
    True, 10**30, [IMAGE, np.zeros((5, 4, 3))], lambda: 1, ["no"], range(3), slice(2), np.zeros((4, 4, 3), complex),
]  # fmt: skip


class Things:
    """A net, a classifier and so on, whose calls are tried."""

    def __init__(self, folder: Path) -> None:
        self.text, self.weights, self.picture = (
            str(folder / name) for name in ("net.prototxt", "n.caffemodel", "a.png")
        )
        Path(self.text).write_text(NET)
        Image.new("RGB", (4, 4)).save(self.picture)
        self.net = caffe.Net(self.text, caffe.TEST)
        self.net.save(self.weights)
        self.classifier = caffe.Classifier(self.text, self.weights)
        self.detector = caffe.Detector(self.text, self.weights)

    def transformer(self) -> Any:
        made = caffe.io.Transformer({"data": (1, 3, 4, 4)})
        made.set_transpose("data", (2, 0, 1))
        return made


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Things:
    return Things(tmp_path_factory.mktemp("odd"))


CALLS: dict[str, Callable[[Things, Any], object]] = {
    "Blob.reshape": lambda t, odd: t.net.blobs["data"].reshape(odd),
    "Blob.reshape, an extent": lambda t, odd: t.net.blobs["data"].reshape(1, odd, 4, 4),
    "Net": lambda t, odd: caffe.Net(odd, caffe.TEST),
    "Net, phase": lambda t, odd: caffe.Net(t.text, odd),
    "Net, weights": lambda t, odd: caffe.Net(t.text, caffe.TEST, weights=odd),
    "Net, level": lambda t, odd: caffe.Net(t.text, caffe.TEST, level=odd),
    "Net, stages": lambda t, odd: caffe.Net(t.text, caffe.TEST, stages=odd),
    "Net, device": lambda t, odd: caffe.Net(t.text, caffe.TEST, device=odd),
    "Net, precision": lambda t, odd: caffe.Net(t.text, caffe.TEST, precision=odd),
    "forward, blobs": lambda t, odd: t.net.forward(odd),
    "forward, start": lambda t, odd: t.net.forward(start=odd),
    "forward, an input": lambda t, odd: t.net.forward(data=odd),
    "backward, diffs": lambda t, odd: t.net.backward(odd),
    "backward, end": lambda t, odd: t.net.backward(end=odd),
    "forward_all": lambda t, odd: t.net.forward_all(data=odd),
    "share_with": lambda t, odd: t.net.share_with(odd),
    "copy_from": lambda t, odd: t.net.copy_from(odd),
    "before_forward": lambda t, odd: caffe.Net(t.text, caffe.TEST).before_forward(odd),
    "classify": lambda t, odd: t.net.classify(odd),
    "preprocess": lambda t, odd: t.net.preprocess(odd),
    "get_solver": lambda t, odd: caffe.get_solver(odd),
    "Classifier, weights": lambda t, odd: caffe.Classifier(t.text, odd),
    "Classifier, image_dims": lambda t, odd: caffe.Classifier(t.text, t.weights, image_dims=odd),
    "Classifier, mean": lambda t, odd: caffe.Classifier(t.text, t.weights, mean=odd),
    "Classifier, channel_swap": lambda t, odd: caffe.Classifier(t.text, t.weights, channel_swap=odd),
    "predict": lambda t, odd: t.classifier.predict(odd),
    "predict, an image": lambda t, odd: t.classifier.predict([odd]),
    "predict, centre": lambda t, odd: t.classifier.predict([odd], oversample=False),
    "Detector, context_pad": lambda t, odd: t.detector.configure_crop(odd),
    "crop": lambda t, odd: t.detector.crop(odd, (0, 0, 2, 2)),
    "crop, window": lambda t, odd: t.detector.crop(IMAGE, odd),
    "detect_windows": lambda t, odd: t.detector.detect_windows(odd),
    "detect_windows, a window": lambda t, odd: t.detector.detect_windows([(t.picture, [odd])]),
    "detect_windows, a file": lambda t, odd: t.detector.detect_windows([(odd, [(0, 0, 2, 2)])]),
    "load_image": lambda t, odd: caffe.io.load_image(odd),
    "resize_image": lambda t, odd: caffe.io.resize_image(odd, (2, 2)),
    "resize_image, new_dims": lambda t, odd: caffe.io.resize_image(IMAGE, odd),
    "resize_image, interp_order": lambda t, odd: caffe.io.resize_image(IMAGE, (2, 2), odd),
    "oversample": lambda t, odd: caffe.io.oversample(odd, (2, 2)),
    "oversample, crop_dims": lambda t, odd: caffe.io.oversample([IMAGE], odd),
    "Transformer": lambda t, odd: caffe.io.Transformer(odd),
    "set_transpose": lambda t, odd: t.transformer().set_transpose("data", odd),
    "set_channel_swap": lambda t, odd: t.transformer().set_channel_swap("data", odd),
    "set_raw_scale": lambda t, odd: t.transformer().set_raw_scale("data", odd),
    "set_input_scale": lambda t, odd: t.transformer().set_input_scale("data", odd),
    "set_mean": lambda t, odd: t.transformer().set_mean("data", odd),
    "Transformer.preprocess": lambda t, odd: t.transformer().preprocess("data", odd),
    "Transformer.preprocess, name": lambda t, odd: t.transformer().preprocess(odd, IMAGE),
    "Transformer.deprocess": lambda t, odd: t.transformer().deprocess("data", odd),
    "array_to_datum": lambda t, odd: caffe.io.array_to_datum(odd),
    "array_to_datum, label": lambda t, odd: caffe.io.array_to_datum(np.zeros((1, 1, 1)), odd),
    "datum_to_array": lambda t, odd: caffe.io.datum_to_array(odd),
    "blobproto_to_array": lambda t, odd: caffe.io.blobproto_to_array(odd),
    "array_to_blobproto": lambda t, odd: caffe.io.array_to_blobproto(odd),
    "arraylist": lambda t, odd: caffe.io.arraylist_to_blobprotovector_str(odd),
    "blobprotovector": lambda t, odd: caffe.io.blobprotovector_str_to_arraylist(odd),
    "NetSpec[]": lambda t, odd: caffe.NetSpec()[odd],
    "NetSpec[]=": lambda t, odd: caffe.NetSpec().__setitem__(odd, caffe.layers.Input()),
    "NetSpec, a top": lambda t, odd: caffe.NetSpec().__setitem__("a", odd),
    "L, bottom": lambda t, odd: caffe.layers.ReLU(odd),
    "L, ntop": lambda t, odd: caffe.layers.Input(ntop=odd) if not isinstance(odd, np.ndarray) else None,
    "to_proto": lambda t, odd: caffe.to_proto(odd),
    "crop of coord_map": lambda t, odd: caffe.coord_map.crop(odd, odd),
    "draw_net_to_file": lambda t, odd: caffe.draw.draw_net_to_file(odd, "x.png"),
    "set_device": lambda t, odd: caffe.set_device(odd) if odd is not True else None,
    "set_solver_rank": lambda t, odd: caffe.set_solver_rank(odd),
    "load_module": lambda t, odd: bpt.load_module(odd),
}


@pytest.mark.parametrize("call", CALLS)
def test_odd_arguments(call: str, things: Things, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = 0
    for odd in ODD:
        try:
            CALLS[call](things, odd)
        except BptError:
            refused += 1
    assert refused


@pytest.mark.parametrize(
    ("call", "odd", "wanted"),
    [
        ("Blob.reshape", (1, 3, 4, 4), r"reshape\(\*\(1, 3, 4, 4\)\)"),
        ("predict", IMAGE, r"write \[image\]"),
        ("predict", [], "it is empty"),
        ("predict", [np.zeros((4, 4, 1), np.float32)], "has 1 channels, .* the net takes 3"),
    ],
)
def test_once_met(call: str, odd: object, wanted: str, things: Things) -> None:
    with pytest.raises(UserError, match=wanted):
        CALLS[call](things, odd)
