"""Text format out, and files of it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpt.base.errors import PrototxtError
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.text import parse_text, read_text, to_text
from tests.support.golden_files import INPUTS, UPGRADE
from tests.support.paths import GOLDEN


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


def complaint(path: Path | str) -> str:
    with pytest.raises(PrototxtError) as caught:
        read_text(path, pb.NetParameter)
    return str(caught.value)


def test_reads_a_file() -> None:
    parsed = read_text(INPUTS / "lenet_train_test.prototxt", pb.NetParameter)
    assert parsed.message.name == "LeNetTiny"
    assert parsed.path == str(INPUTS / "lenet_train_test.prototxt")
    assert parse_text(to_text(parsed.message), pb.NetParameter).message == parsed.message


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "lenet_solver.prototxt").touch()
    missing = tmp_path / "lenet_solvr.prototxt"
    assert complaint(missing) == f'{missing}: no such file; did you mean "{tmp_path}/lenet_solver.prototxt"?'


def test_missing_file_without_a_near_one(tmp_path: Path) -> None:
    (tmp_path / "a.prototex").mkdir()  # no file
    assert complaint(tmp_path / "a.prototxt") == f"{tmp_path}/a.prototxt: no such file"
    assert complaint(tmp_path / "b" / "a.prototxt") == (
        f'{tmp_path}/b/a.prototxt: no such file: there is no folder "{tmp_path}/b"'
    )


def test_name_that_cannot_be_a_file(tmp_path: Path) -> None:
    assert complaint("") == ": is a folder, not a file"
    assert complaint("a\0b") == "a\0b: is not a file name"
    assert "cannot be read: " in complaint("x" * 5000)
    assert "cannot be read: " in complaint(INPUTS / "solver.prototxt" / "x")


def test_folder(tmp_path: Path) -> None:
    assert complaint(tmp_path) == f"{tmp_path}: is a folder, not a file"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lenet_iter_30.caffemodel", "a binary file of weights (caffemodel)"),
        ("lenet_iter_30.solverstate", "a binary solver state (solverstate)"),
        ("mean.binaryproto", "a binary blob, such as a mean image (binaryproto)"),
        ("lenet_opts_iter_30.caffemodel.h5", "an HDF5 file"),
    ],
)
def test_binary_file_is_named(name: str, kind: str) -> None:
    assert complaint(INPUTS / name) == f"{INPUTS / name}: is {kind}, not a prototxt"


def test_other_contents(tmp_path: Path) -> None:
    path = tmp_path / "a.prototxt"
    path.write_bytes(b"\x00\x01\x02")
    assert complaint(path) == f"{path}: is a file of an unknown kind, not a prototxt"
    path.write_text('name: "a"', encoding="utf-16")
    assert complaint(path) == f"{path}: is UTF-16; save the file as UTF-8"
    path.write_text('\nname: "café"', encoding="latin-1")
    assert complaint(path) == f"{path}:2:11: byte 0xe9 is not UTF-8; save the file as UTF-8"


def test_harmless_contents(tmp_path: Path) -> None:
    path = tmp_path / "a.prototxt"
    path.write_bytes(b"")
    assert read_text(path, pb.NetParameter).message == pb.NetParameter()
    path.write_bytes('\ufeffname: "é"\r\n'.encode() + b"# caf\xe9\r\n")
    parsed = read_text(path, pb.NetParameter)
    assert parsed.message.name == "é"
    assert parsed.origins["name",].column == 1
