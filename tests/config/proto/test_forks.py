"""Fields of Caffe's forks: all are read; those without a meaning are told of, once each; some are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import bpt
from bpt.base.errors import PrototxtError
from bpt.config.plan.resolve import read_plan
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.sources import read_net
from bpt.config.proto.text import to_text
from bpt.train.rules.violations import ignored_settings

NET = """
name: "resnet" default_forward_type: FLOAT16 default_backward_type: FLOAT16 default_forward_math: FLOAT
default_backward_math: FLOAT global_grad_scale: 1000 global_grad_scale_adaptive: false
default_conv_algos_override: "1,1,1" reduce_buckets: 3 default_cudnn_math_override: 0 eltwise_mem_sharing: false
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 } } forward_math: FLOAT }
layer { name: "relu" type: "ReLU" bottom: "data" top: "relu" forward_type: FLOAT backward_type: FLOAT
  forward_math: FLOAT backward_math: FLOAT debug: true cudnn_math_override: 1 }
"""


def test_each_field_without_effect_is_told_of_once(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(NET)
    notes = read_net(tmp_path / "net.prototxt").notes
    assert [note.partition(" has no effect: ")[0] for note in notes] == [
        "default_backward_type",
        "default_forward_math",
        "default_backward_math",
        "default_conv_algos_override",
        "reduce_buckets",
        "default_cudnn_math_override",
        "eltwise_mem_sharing",
        'forward_math of layer "data" and 1 more',
        'backward_type of layer "relu"',
        'backward_math of layer "relu"',
        'debug of layer "relu"',
        'cudnn_math_override of layer "relu"',
    ]


def test_those_of_solvers(tmp_path: Path) -> None:
    text = 'net: "n" max_iter: 1 base_lr: 1 lr_policy: "fixed" solver_data_type: FLOAT store_blobs_in_old_format: true'
    (tmp_path / "solver.prototxt").write_text(text)
    first, second = map(str, ignored_settings(read_plan(tmp_path / "solver.prototxt")))
    assert first.startswith("solver_data_type has no effect: ")
    assert second.startswith("store_blobs_in_old_format has no effect: ")


def test_a_layer_in_double_precision_among_others(tmp_path: Path) -> None:
    layer = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } forward_type: DOUBLE }'
    (tmp_path / "net.prototxt").write_text(layer)
    (note,) = read_net(tmp_path / "net.prototxt").notes
    assert note == 'forward_type: DOUBLE of layer "x" is read as FLOAT: a run has one precision of its own'
    (tmp_path / "net.prototxt").write_text(f"default_forward_type: DOUBLE {layer}")
    assert not read_net(tmp_path / "net.prototxt").notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "default_forward_type: INT",
            "net.prototxt:1:1: default_forward_type is INT; it must be FLOAT16, FLOAT or DOUBLE",
        ),
        ('layer { name: "x" type: "ReLU"\n forward_type: BOOL }', "net.prototxt:2:2: forward_type is BOOL; it must be"),
    ],
)
def test_types_in_which_nobody_computes(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(text)
    with pytest.raises(PrototxtError, match=words):
        read_net(tmp_path / "net.prototxt")


def test_fields_inside_of_settings_and_quoted_engines(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text("""
        engine: "MKLDNN"
        layer { name: "a" type: "Convolution" engine: "CAFFE"
          convolution_param { conv_algorithm: "auto" engine: MKL2017 } }
        layer { name: "b" type: "Convolution" convolution_param { conv_algorithm: "direct" } }
    """)
    assert [note.partition(" has no effect: ")[0] for note in read_net(tmp_path / "net.prototxt").notes] == [
        "engine",
        'engine of layer "a"',
        'convolution_param.conv_algorithm of layer "a" and 1 more',
    ]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            'type: "Dropout" dropout_param { sample_weights_test: true }',
            "sample_weights_test, of another Caffe, is not supported",
        ),
        (
            'type: "Scale" scale_param { filler { type: "msra"\n scale: 2 } }',
            'net.prototxt:2:2: layer "L": scale, of another Caffe, is not supported: write the filler as gaussian',
        ),
    ],
)
def test_what_is_refused(settings: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } } '
        f'layer {{ name: "L" bottom: "x" top: "y" {settings} }}'
    )
    with pytest.raises(PrototxtError, match=words):
        bpt.Net(path, bpt.TEST)
    path.write_text(path.read_text().replace("_test: true", "_test: false").replace("scale: 2", "scale: 1"))
    bpt.Net(path, bpt.TEST)


def test_what_is_refused_of_solvers(tmp_path: Path) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text('net: "n" max_iter: 1 base_lr: 1 lr_policy: "fixed"\ndisabled_update: true')
    with pytest.raises(PrototxtError, match=r"solver\.prototxt:2:1: disabled_update, .* nothing would be trained"):
        read_plan(path)


def test_texts_for_caffe_have_no_values_of_forks() -> None:
    engines = pb.ReLUParameter(engine=pb.ReLUParameter.MKLDNN, negative_slope=0.5)
    assert to_text(engines, for_caffe=True) == "negative_slope: 0.5\n"
    assert to_text(engines) == "negative_slope: 0.5\nengine: MKLDNN\n"
