"""Where pixels lie: maps worked by hand, and the crops that follow from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import bpt
from bpt.caffe import NetSpec, coord_map
from bpt.caffe import layers as L
from bpt.caffe import params as P
from bpt.caffe.coord_map import coord_map_from_to, crop
from tests.support.pycaffe_texts import write


def spec(pool: int = 2, up: int = 2, up_pad: int = 0, **convolution: object) -> NetSpec:
    """A convolution, a pooling that shrinks, and a Deconvolution of twice the stride that enlarges again."""
    n = NetSpec()
    n.data = L.Input(shape={"dim": [2, 1, 100, 100]})
    n.conv = L.Convolution(n.data, num_output=10, **({"kernel_size": 3} | convolution))
    n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=pool, stride=pool)
    up_param = {"num_output": 10, "kernel_size": 2 * up, "stride": up, "pad": up_pad}
    n.up = L.Deconvolution(n.pool, convolution_param=up_param)
    return n


@pytest.mark.parametrize(
    ("made", "b"),
    [
        # up → pool: x / 2 - (4 - 1) / 2 / 2, then 2 x + 1/2 to conv, then x + (3 - 1) / 2 to data
        (spec(), 0),
        (spec(pool=4, up=4), -1),  # x / 4 - 7 / 8, then 4 x + 3 / 2, then x + 1
        (spec(pad=7), -7),
        (spec(up_pad=3), 3),
        (spec(pad=3, up_pad=3), 0),
        (spec(dilation=4), 3),  # 3 taps over 9 pixels
        (spec(kernel_size=1), -1),
    ],
)
def test_maps_of_one_scale(made: NetSpec, b: float) -> None:
    assert coord_map_from_to(made.up, made.data) == (1, 1, b)
    made.relu = L.ReLU(made.up)
    made.same = L.Convolution(L.Scale(L.Dropout(made.relu)), num_output=3, kernel_size=1)
    assert coord_map_from_to(made.same, made.data) == (1, 1, b)
    made.cropped = L.Crop(made.same, made.data, axis=2, offset=5)
    assert coord_map_from_to(made.cropped, made.data) == (1, 1, b + 5)


def test_maps_of_axes_that_differ() -> None:
    n = spec(kernel_size=[3, 5], stride=[1, 2], pad=[0, 10])
    axis, a, b = coord_map_from_to(n.up, n.data)
    assert (axis, a.tolist(), b.tolist()) == (1, [1, 2], [0, -10])  # x - 1 in conv, then 2 x + (5 - 1) / 2 - 10
    sides = spec(kernel_h=3, kernel_w=5, stride_h=1, stride_w=2, pad_h=0, pad_w=10)
    assert coord_map_from_to(sides.up, sides.data)[2].tolist() == b.tolist()


def test_both_ways_and_over_what_both_are_made_of() -> None:
    n = spec()
    assert coord_map_from_to(n.data, n.up) == (1, 1, 0)
    n.other = L.Convolution(n.pool, num_output=2, kernel_size=5, stride=1, pad=1)
    assert coord_map_from_to(n.other, n.up) == (1, 2, 2 * (5 - 1) / 2 - 2 + 1.5)  # x + 1, then 2 x + 3/2


def test_no_map() -> None:
    n = spec()
    n.ip = L.InnerProduct(n.up, num_output=10)
    n.alone = L.Input(shape={"dim": [2, 1, 9, 9]})
    for top in (n.ip, n.alone):
        with pytest.raises(coord_map.UndefinedMapException, match="not connected"):
            coord_map_from_to(top, n.data)
    assert issubclass(coord_map.UndefinedMapException, RuntimeError)
    n.odd = L.Convolution(n.data, num_output=1, kernel_size=1, axis=2)
    with pytest.raises(coord_map.AxisMismatchException):
        coord_map_from_to(L.Convolution(n.odd, num_output=1, kernel_size=1), n.data)


def test_what_cannot_be_cropped() -> None:
    for made, why in ((spec(pool=3), "the same scale"), (spec(up_pad=10), "begins 10.0 pixels inside")):
        with pytest.raises(AssertionError, match=why):
            crop(made.up, made.data)
    n = spec(kernel_size=2, pad=2)
    with pytest.raises(AssertionError, match="not a whole number"):
        crop(n.up, n.data)


def test_a_crop_puts_pixels_where_they_were(tmp_path: Path) -> None:
    """A net of identities, cropped, gives the picture back."""
    n = NetSpec()
    n.data = L.Input(shape={"dim": [1, 1, 9, 9]})
    one = {"type": "constant", "value": 1}
    n.wide = L.Convolution(n.data, num_output=1, kernel_size=1, pad=4, weight_filler=one)
    n.cropped = crop(n.wide, n.data)
    assert list(n.to_proto().layer[-1].crop_param.offset) == [4]
    net = bpt.Net(write(tmp_path, str(n.to_proto())), bpt.TEST)
    picture = np.random.default_rng(0).random((1, 1, 9, 9)).astype(np.float32)
    np.testing.assert_allclose(net.forward(data=picture)["cropped"], picture, rtol=1e-6)
