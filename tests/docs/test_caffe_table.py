"""The tables of docs/caffe.md say what is true: of all types, fields, programs and names of pycaffe."""

from __future__ import annotations

import importlib
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import bpt
import bpt.caffe
from bpt.base.errors import BptError
from bpt.base.violation import refuse
from bpt.cli.main import COMMANDS, make_parser
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto import fork_fields
from bpt.config.proto.sources import read_net
from bpt.nn.layers import LAYERS
from bpt.train.rules.violations import violations
from tests.support.caffe_table import (
    CAFFE_TYPES,
    Field,
    Row,
    field_rows,
    fields_that,
    fork_rows,
    forks_schema,
    is_set_in_tests,
    recorded,
    rows,
    schema,
    sections,
)
from tests.support.one_layer import one_layer, tops_of
from tests.support.paths import ROOT

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 dim: 5 dim: 6 } } }\n'
CODE = re.compile(r"`([^`]+)`")


# --- layer types


def test_every_layer_type_is_listed_once_and_is_there() -> None:
    listed = [name for row in rows("Layer types") for name in row.names]
    assert len(listed) == len(set(listed))
    assert set(listed) >= CAFFE_TYPES
    assert set(listed) == set(LAYERS)
    assert {row.state for row in rows("Layer types")} == {"works"}


def test_types_that_are_not_there() -> None:
    table = rows("Types that are not there")
    names = [name for row in table for name in row.names]
    assert {row.state for row in table} == {"absent"}
    assert len(names) == len(set(names))
    assert not set(names) & set(LAYERS)


# --- fields


def test_every_field_is_listed_once() -> None:
    listed = [(row.message, name) for row in field_rows() for name in row.names]
    assert len(listed) == len(set(listed))
    assert set(listed) == schema()


def test_states() -> None:
    assert {row.state for row in field_rows()} == {"works", "upgraded", "no effect", "refused"}
    silent = [row for row in field_rows() if row.state != "works" and not row.remark]
    assert not silent


def test_every_field_of_a_fork_is_listed_once_with_its_state() -> None:
    listed = [(row.message, name) for row in fork_rows() for name in row.names]
    assert len(listed) == len(set(listed))
    assert set(listed) == forks_schema()
    states = {(row.message, name): row.state for row in fork_rows() for name in row.names}
    told = {(message, name) for message, fields in fork_fields.NO_EFFECT.items() for name in fields}
    refused = {(message, name) for message, fields in fork_fields.REFUSED.items() for name in fields}
    assert {field for field in told if states[field] != "no effect"} == set()
    assert {field for field, state in states.items() if state == "refused"} == refused | {
        ("NetParameter", "bn_stats_batch_size"),
        ("CorrelationParameter", "single_direction"),
        ("CorrelationParameter", "do_abs"),
        *(("VideoDataParameter", name) for name in ("video_type", "device_id", "video_file", "skip_frames")),
    }
    assert {row.state for row in fork_rows()} == {"works", "upgraded", "no effect", "refused", "absent"}


@pytest.mark.parametrize("state", ["works", "upgraded"])
def test_what_works_is_set_in_a_recording_or_a_test(state: str) -> None:
    unseen = {field for field in fields_that(state) if field not in recorded() and not is_set_in_tests(field)}
    assert unseen == ({("V1LayerParameter", name) for name in OF_ENGINES} if state == "upgraded" else set())


# They hold nothing but "engine", so that no text has a use for them:
# tests/config/proto/upgrade/test_every_field.py has them.
OF_ENGINES = frozenset({"sigmoid_param", "tanh_param"})


@pytest.mark.parametrize("row", [row for row in field_rows() if row.state == "upgraded"], ids=lambda row: row.names[0])
def test_what_is_upgraded_names_todays_field(row: Row) -> None:
    words = {word for code in CODE.findall(row.remark) for word in re.findall(r"[a-z_]+", code)}
    today = {name for message, name in schema() if message not in ("V0LayerParameter", "V1LayerParameter")}
    assert "same names" in row.remark or "V0" in row.remark or words & today


# --- fields without effect

# What sets the field, and a layer that has it.
ENGINES: dict[Field, str] = {
    ("ConvolutionParameter", "engine"): "Convolution convolution_param { num_output: 2 kernel_size: 3 engine: E }",
    ("ConvolutionParameter", "force_nd_im2col"):
        "Convolution convolution_param { num_output: 2 kernel_size: 3 force_nd_im2col: true }",
    ("LRNParameter", "engine"): "LRN lrn_param { local_size: 3 engine: E }",
    ("PoolingParameter", "engine"): "Pooling pooling_param { kernel_size: 3 engine: E }",
    ("ReLUParameter", "engine"): "ReLU relu_param { negative_slope: 0.5 engine: E }",
    ("SigmoidParameter", "engine"): "Sigmoid sigmoid_param { engine: E }",
    ("SoftmaxParameter", "engine"): "Softmax softmax_param { axis: 2 engine: E }",
    ("TanHParameter", "engine"): "TanH tanh_param { engine: E }",
    ("SPPParameter", "engine"): "SPP spp_param { pyramid_height: 2 engine: E }",
}  # fmt: skip
NOTICED: frozenset[Field] = frozenset(
    {("SolverParameter", "layer_wise_reduce"), ("RecurrentParameter", "debug_info"), ("V0LayerParameter", "new_num"),
     ("V0LayerParameter", "new_channels")}
)  # fmt: skip
HOLDING_ENGINES: frozenset[Field] = frozenset(("LayerParameter", name) for name in OF_ENGINES)
NOWHERE: Field = ("BlobProtoVector", "blobs")


def test_all_fields_without_effect_have_an_example() -> None:
    assert set(fields_that("no effect")) == {*ENGINES, *NOTICED, *HOLDING_ENGINES, NOWHERE}


@pytest.mark.parametrize("field", list(ENGINES), ids=".".join)
@pytest.mark.parametrize("engine", ["CAFFE", "CUDNN"])
def test_engines_change_no_number(field: Field, engine: str) -> None:
    kind, settings = ENGINES[field].split(" ", 1)
    without = re.sub(rf"{field[1]}: \w+", "", settings)
    assert without != settings
    results = []
    for text in (without, settings.replace(": E ", f": {engine} ")):
        layer = one_layer(f'type: "{kind}" {text}', (2, 4, 5, 6))
        x = torch.linspace(-1, 1, 240).reshape(2, 4, 5, 6).requires_grad_()
        (top,) = tops_of(layer, x)
        (top * torch.arange(top.numel()).reshape(top.shape)).sum().backward()
        results.append((top.detach(), x.grad))
    assert all(map(torch.equal, *results))


def test_some_messages_hold_nothing_but_an_engine() -> None:
    messages = {pb.LayerParameter.DESCRIPTOR.fields_by_name[name].message_type for name in OF_ENGINES}
    assert {field.name for message in messages if message for field in message.fields} == {"engine"}


def test_nothing_holds_a_vector_of_blobs() -> None:
    kinds = pb.DESCRIPTOR.message_types_by_name.values()
    held = [field.message_type for kind in kinds for field in kind.fields]
    assert NOWHERE[0] not in {message.name for message in held if message is not None}


def test_layer_wise_reduce_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(INPUT)
    solver = tmp_path / "solver.prototxt"
    solver.write_text(f'net: "{net}" base_lr: 1 lr_policy: "fixed" max_iter: 1 layer_wise_reduce: false')
    caplog.set_level(logging.WARNING, "bpt")
    with bpt.get_solver(solver):
        assert any("layer_wise_reduce has no effect" in line for line in caplog.messages)


def test_debug_info_of_recurrent_layers_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bpt")
    for kind in ("RNN", "LSTM"):
        caplog.clear()
        one_layer(f'type: "{kind}" recurrent_param {{ num_output: 2 debug_info: true }}', (3, 2, 4), (3, 2))
        assert any("there is no unrolled net to log" in line for line in caplog.messages)


@pytest.mark.parametrize("field", ["new_num", "new_channels"])
def test_fields_of_v0_without_a_reader_are_noticed(field: str, tmp_path: Path) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(f'layers {{ top: "x" layer {{ name: "d" type: "data" source: "db" {field}: 3 }} }}')
    assert any(f"Unknown parameter {field} for layer type data; it is ignored" in note for note in read_net(net).notes)


# --- what is refused


def test_an_object_shared_by_ranks_is_refused() -> None:
    assert fields_that("refused") == [("PythonParameter", "share_in_parallel")]
    settings = 'python_param { module: "tests.support.own_layers" layer: "Gate" share_in_parallel: true }'
    layer = one_layer(f'type: "Python" {settings}', (2, 4, 1, 1))
    assert "share_in_parallel" in layer.mixes_samples(layer.spec, [(2, 4, 1, 1)])


def _layer(kind: str, settings: str) -> str:
    return f'{INPUT} layer {{ name: "L" type: "{kind}" bottom: "x" top: "y" {settings} }}'


def _solver(settings: str) -> str:
    return f'net: "net.prototxt" base_lr: 1 lr_policy: "fixed" max_iter: 1 {settings}'


DATA = 'layer { name: "L" type: "Data" top: "x" '
SCALE = 'layer { name: "L" type: "Scale" bottom: "x" top: "y" } '
# The field as the table has it: a text that is refused, and what the error says.
REFUSED = {
    "transform_param": (
        'layer { name: "L" type: "HDF5Data" top: "x" transform_param { scale: 2 } '
        'hdf5_data_param { source: "list.txt" batch_size: 1 } }',
        "HDF5Data does not transform its data; take transform_param out",
    ),
    "backend": (DATA + 'data_param { source: "level" batch_size: 1 backend: LEVELDB } }', "is a LevelDB"),
    "axis": (_layer("Concat", "concat_param { axis: 1 concat_dim: 1 }"), "give axis or concat_dim (its old form)"),
    "kernel_size": (
        _layer("Convolution", "convolution_param { num_output: 1 kernel_size: 3 kernel_h: 3 kernel_w: 3 }"),
        "give kernel_size, or kernel_h and kernel_w",
    ),
    "mean_file": (
        DATA + 'transform_param { mean_file: "m" mean_value: 1 } data_param { source: "db" batch_size: 1 } }',
        "give mean_file or mean_value, not both",
    ),
    "lr_mult": (_layer("BatchNorm", "param { lr_mult: 2 }"), "param 0 has lr_mult 2"),
    "include": (
        _layer("ReLU", "include { phase: TEST } exclude { phase: TRAIN }"), 'use "include" or "exclude" rules'
    ),
    "type": (_solver('type: "SGD" solver_type: ADAM'), '"solver_type" is the old form of "type"'),
    "momentum": (_solver('type: "AdaGrad" momentum: 0.5'), "momentum"),
    "layers": (INPUT + 'layers { name: "L" type: RELU bottom: "x" top: "y" }', '"layers", along with new ones'),
    "name": (INPUT + SCALE + SCALE.replace('"y"', '"z"').replace('"x"', '"y"'), "another layer has the same name"),
}  # fmt: skip


@pytest.mark.parametrize("field", list(REFUSED))
def test_what_is_refused_though_the_field_works(field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "level").mkdir()
    for name in ("CURRENT", "MANIFEST-000001"):
        (tmp_path / "level" / name).touch()
    text, message = REFUSED[field]
    path = tmp_path / "file.prototxt"
    path.write_text(text)
    with pytest.raises(BptError) as caught:
        _read_solver(path) if text.startswith("net:") else bpt.Net(path, bpt.TEST)
    assert message in str(caught.value)
    assert re.match(r".*file\.prototxt:\d+:\d+: ", str(caught.value))


def _read_solver(path: Path) -> None:
    plan = read_plan(path)
    refuse(plan, violations(plan))


def test_all_that_is_refused_has_an_example() -> None:
    assert [cells[0].strip("`") for cells in sections()["What is refused though the field works"]] == list(REFUSED)


# --- programs


def test_programs_that_work_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    parsers: Any = next(action.choices for action in make_parser()._actions if action.dest == "command")
    tools = set()
    for row in rows("Programs"):
        codes = CODE.findall(row.remark)
        commands = [code.split()[1] for code in codes if code.startswith("bpt ")]
        assert set(commands) <= set(COMMANDS)
        files = [code.split()[0] for code in codes if code.startswith(("tools/", "scripts/"))]
        assert all((ROOT / name).is_file() for name in files), row
        if row.state == "works":
            assert commands or files, row
            tools.update(files)
            flags = {word for code in codes if code.startswith("--") for word in code.split()}
            actions = [action for command in commands for action in parsers[command]._actions]
            assert flags <= {flag for action in actions for flag in action.option_strings}, row
        else:
            assert row.state == "absent"
            assert not [name for name in row.names if (ROOT / "tools" / _program(name)).exists()]
    assert tools == {f"tools/{path.name}" for path in (ROOT / "tools").glob("*.py")}
    for tool in sorted(tools):
        with pytest.raises(SystemExit) as ended:
            importlib.import_module(tool.removesuffix(".py").replace("/", ".")).main(["--help"])
        assert ended.value.code == 0
    capsys.readouterr()


def _program(name: str) -> str:
    """The file that a program of this name would be."""
    file = Path(name).name
    return file if "." in file else f"{file}.py"


# --- pycaffe


def test_the_names_of_pycaffe(tmp_path: Path) -> None:
    net = tmp_path / "net.prototxt"
    net.write_text(INPUT)
    path = tmp_path / "solver.prototxt"
    path.write_text(f'net: "{net}" base_lr: 1 lr_policy: "fixed" max_iter: 1')
    listed = [(row, name) for row in rows("pycaffe") for name in row.names]
    with bpt.get_solver(path) as solver:
        holders = {"Net": solver.net, "Solver": solver, "Blob": solver.net.blobs["x"]}
        for row, name in listed:
            holder, *attributes = name.split(".")
            found: object = holders.get(holder) or getattr(bpt.caffe, holder)
            for attribute in attributes:
                found = getattr(found, attribute)
            assert row.state == ("refused" if name in REFUSED_NAMES else "works"), name
    top = {name for _, name in listed if "." not in name}
    assert top | {"proto", "install"} == set(bpt.caffe.__all__)


# Each says by a UserError what to do instead: tests/caffe/test_names.py, test_classifier.py.
REFUSED_NAMES = frozenset(
    {"NCCL", "set_solver_count", "set_solver_rank", "set_multiprocess", "Detector.detect_selective_search"}
)
