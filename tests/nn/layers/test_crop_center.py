"""CropCenter by hand, its gradients, and what its text can get wrong."""

from __future__ import annotations

from pathlib import Path

import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.dialects import read_net
from tests.support.one_layer import one_layer


def body(*sizes: int) -> str:
    listed = " ".join(f"crop_size: {size}" for size in sizes)
    return f'type: "CropCenter" crop_center_param {{ {listed} }}'


def test_by_hand() -> None:
    x = torch.arange(2 * 1 * 4 * 5.0).view(2, 1, 4, 5).requires_grad_()
    top = one_layer(body(0, 0, 1, 2), tuple(x.shape))(x)
    assert top.flatten().tolist() == [7, 12, 27, 32]
    top.sum().backward()
    assert x.grad is not None and x.grad.flatten().nonzero().flatten().tolist() == [7, 12, 27, 32]


def test_waifu2xs_binary_number(tmp_path: Path) -> None:
    """Its Caffe has crop_center_param as field 149 of a layer, with crop_size as field 2."""
    param = b"".join(b"\x10" + bytes([size]) for size in (0, 0, 4, 4))
    layer = pb.LayerParameter(name="c", type="CropCenter", bottom=["x"], top=["y"]).SerializeToString()
    layer += b"\xaa\x09" + bytes([len(param)]) + param  # 149 << 3 | 2
    path = tmp_path / "net.caffemodel"
    path.write_bytes(b"\xa2\x06" + bytes([len(layer)]) + layer)
    assert list(read_net(path)[0].layer[0].crop_center_param.crop_size) == [0, 0, 4, 4]
