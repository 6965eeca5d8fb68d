"""What long runs have found, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bpt.config.proto import bpt_pb2 as pb
from tests.fuzz.engine import Target, run_one
from tests.fuzz.targets.binary import States
from tests.fuzz.targets.lists import Hdf5Lists, Logs, WindowFiles
from tests.fuzz.targets.nets import Nets
from tests.fuzz.targets.text import SolverTexts

_INPUT = b'layer { name: "in" type: "Input" top: "x" input_param { shape { %s } } } '
_FILLED = _INPUT % b"dim: 2 dim: 3" + (
    b'layer { name: "L" type: "InnerProduct" bottom: "x" top: "y" inner_product_param { num_output: 2 '
    b"weight_filler { %s } } }"
)
_DATA = (
    b'layer { name: "L" type: "%s" top: "y" top: "l" transform_param { %s } %s { batch_size: 2 source: "data/%s" %s } }'
)


@pytest.mark.parametrize(
    ("kind", "case", "is_refused"),
    [
        pytest.param(SolverTexts, b"solver_mode: 4294967296", True, id="an enum that is 0 modulo 2^32"),
        pytest.param(Nets, _FILLED % b'type: "uniform" min: nan', True, id="a filler from NaN"),
        pytest.param(Nets, _FILLED % b'type: "uniform" min: -3e38 max: 3e38', True, id="a range beyond float32"),
        pytest.param(Nets, _FILLED % b'type: "gaussian" std: nan', True, id="a filler with a std of NaN"),
        pytest.param(
            Nets, _INPUT % b"" + b'layer { name: "L" type: "Dropout" bottom: "x" top: "y" }', False, id="a mask of one"
        ),
        pytest.param(
            Nets,
            _DATA % (b"Data", b"scale: -inf crop_size: 4", b"data_param", b"encoded_lmdb", b""),
            True,
            id="an infinite scale",
        ),
        pytest.param(
            Nets,
            _DATA
            % (
                b"ImageData", b"crop_size: 4", b"image_data_param", b"list.txt",
                b'root_folder: "data/images/" new_height: 8 new_width: 2147483647',
            ),
            True,
            id="an image too wide",
        ),
        pytest.param(
            States, pb.SolverState(iter=1, learned_net="Xa", history=[{}]).SerializeToString().replace(b"X", b"\xff"),
            True, id="a name that is not UTF-8",
        ),
        pytest.param(
            States, pb.SolverState(iter=1, learned_net="a\0", history=[{}]).SerializeToString(), True,
            id="a name with a null",
        ),
        pytest.param(Hdf5Lists, b"a" * 300, True, id="a name that no system takes"),
        pytest.param(
            WindowFiles, b"# 0\nimages/im0.png\n3\n8\n8\n1\n2 0.75 1 2 3 0\n", True, id="a window that ends too early"
        ),
        pytest.param(Logs, b"Iteration 1, loss = 0.5.\nIteration 2, loss = 1", False, id="a number with two points"),
        pytest.param(Logs, b"Iteration " + b"1" * 5000 + b", loss = 1", True, id="an iteration of 5000 digits"),
    ],
)  # fmt: skip
def test_it_is_taken_or_refused(kind: type[Target], case: bytes, is_refused: bool, tmp_path: Path) -> None:
    assert run_one(kind(tmp_path), case).refused == is_refused
