"""Text format out."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.proto import bpt_pb2 as pb
from bpt.proto.format import to_text
from bpt.proto.parse import parse_text
from tests.proto.golden import GOLDEN, UPGRADE


def test_layout() -> None:
    net = pb.NetParameter(name="n", force_backward=True)
    layer = net.layer.add(name="a", top=["x", "y"], phase="TEST", loss_weight=[1, 0.25])
    layer.convolution_param.pad.append(3)
    layer.input_param.SetInParent()
    assert to_text(net) == (
        'name: "n"\nforce_backward: true\nlayer {\n  name: "a"\n  top: "x"\n  top: "y"\n  loss_weight: 1\n'
        "  loss_weight: 0.25\n  phase: TEST\n  convolution_param {\n    pad: 3\n  }\n  input_param {\n  }\n}\n"
    )


def test_empty_message() -> None:
    assert to_text(pb.NetParameter()) == ""


@pytest.mark.parametrize("path", sorted(UPGRADE.glob("*.upgraded.prototxt")), ids=lambda path: path.name)
def test_files_that_caffe_wrote(path: Path) -> None:
    text = path.read_text()
    message_class = pb.SolverParameter if "solver" in path.name else pb.NetParameter
    assert to_text(parse_text(text, message_class).message) == text


def dumped_nets() -> list[str]:
    """The nets that Caffe printed into its logs."""
    dumps = []
    for log in sorted((GOLDEN / "cli").glob("*.stderr.txt")):
        for part in log.read_text().split("Initializing net from parameters: \n")[1:]:
            dumps.append(re.split(r"^[IWEF]\d{8}", part, maxsplit=1, flags=re.MULTILINE)[0])
    return dumps


def test_nets_that_caffe_logged() -> None:
    dumps = dumped_nets()
    assert len(dumps) > 20
    for dump in set(dumps):
        assert to_text(parse_text(dump, pb.NetParameter).message) == dump


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1.0, "1"),
        (-0.0, "-0"),
        (1e-8, "1e-08"),
        (1e10, "1e+10"),
        (123456.0, "123456"),
        (16777216.0, "16777216"),
        (1 / 3, "0.33333334"),
        (3.4028235e38, "3.4028235e+38"),
        (1e-45, "1.4013e-45"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_floats(value: float, text: str) -> None:
    assert to_text(pb.SolverParameter(base_lr=value)) == f"base_lr: {text}\n"


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(width=32, allow_nan=False))
def test_floats_round_trip(value: float) -> None:
    text = to_text(pb.SolverParameter(base_lr=value)).split()[1]
    assert np.float32(float(text)) == np.float32(value)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.floats(allow_nan=False))
def test_doubles_round_trip(value: float) -> None:
    text = to_text(pb.BlobProto(double_data=[value])).split()[1]
    assert float(text) == value


def test_strings_are_escaped() -> None:
    assert to_text(pb.LayerParameter(name='a"\\\n\té')) == 'name: "a\\"\\\\\\n\\t\\303\\251"\n'
    assert to_text(pb.Datum(data=b"\x00\xff'")) == 'data: "\\000\\377\\\'"\n'


def test_for_caffe_leaves_out_what_caffe_does_not_know() -> None:
    solver = pb.SolverParameter(base_lr=0.5, engine="CHANNELS_LAST", parallel_param={"num_shards": 2})
    layer = solver.net_param.layer.add(name="a", parallel_param={"mode": "MODEL"})
    layer.data_param.shuffle = True
    layer.batch_norm_param.sync = True
    assert "engine: CHANNELS_LAST\n" in to_text(solver)
    assert to_text(solver, for_caffe=True) == (
        "base_lr: 0.5\nnet_param {\n  layer {\n"
        '    name: "a"\n    data_param {\n    }\n    batch_norm_param {\n    }\n  }\n}\n'
    )


def test_for_caffe_keeps_caffes_own_high_numbers() -> None:
    net = pb.NetParameter(layers=[{"param": ["w"], "blob_share_mode": ["PERMISSIVE"]}])
    assert to_text(net, for_caffe=True) == to_text(net)
    assert "blob_share_mode: PERMISSIVE" in to_text(net)
