"""V0 layers and their padding."""

from __future__ import annotations

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.upgrade import v0
from bpt.config.proto.upgrade.v1 import TYPES as V1_TYPES
from tests.config.proto.upgrade.upgraded import net, refusal, upgrade

INPUT = 'input: "x" input_dim: [1,1,9,9]\n'
PADDING = 'layers { layer { name: "p" type: "padding" pad: 2 } bottom: "x" top: "y" }\n'


def test_every_reader_pads_by_itself() -> None:
    parsed, _ = upgrade(
        INPUT
        + PADDING
        + 'layers { layer { name: "c" type: "conv" pad: 1 } bottom: "y" top: "c" }\n'
        + 'layers { layer { name: "q" type: "pool" } bottom: "y" top: "q" }\n'
        + 'layers { layer { name: "d" type: "conv" } bottom: "x" top: "y" }\n'
        + 'layers { layer { name: "r" type: "relu" } bottom: "y" top: "r" }'  # no longer what was padded
    )
    assert list(parsed.message.layer)[1:] == list(
        net(
            'layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { pad: 2 } }'
            'layer { name: "q" type: "Pooling" bottom: "x" top: "q" pooling_param { pad: 2 } }'
            'layer { name: "d" type: "Convolution" bottom: "x" top: "y" }'
            'layer { name: "r" type: "ReLU" bottom: "y" top: "r" }'
        ).layer
    )
    assert [parsed.origin("layer", index).line for index in range(5)] == [1, 3, 4, 5, 6]
    assert parsed.origin("layer", 1, "convolution_param", "pad").line == 2


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            PADDING + 'layers { layer { name: "r" type: "relu" }\nbottom: "y" top: "r" }',
            '4:1: layer "r": is of type "relu", but only conv and pool can read what a padding layer pads',
        ),
        (
            PADDING + PADDING.replace('bottom: "x"', 'bottom: "y"'),
            '3:53: layer "p": is of type "padding", but only conv and pool can read what a padding layer pads',
        ),
        (
            PADDING + 'layers { layer { name: "c" type: "conv" } bottom: "x" bottom: "y" }',
            '3:43: layer "c": reads a padded blob, which must be its only bottom',
        ),
        (
            PADDING.replace('top: "y"', 'top: "y" top: "z"') + 'layers { layer { type: "conv" } bottom: "y" }',
            '2:53: layer "p": a padding layer needs one bottom and one top',
        ),
        (
            PADDING + 'layers { layer { name: "c" type: "conv" } bottom: "yy" }',
            '3:43: layer "c": no layer before it makes "yy"; did you mean "y"?',
        ),
    ],
)
def test_mistakes_of_padding(layers: str, message: str) -> None:
    assert refusal(INPUT + layers) == message


def layer_of(settings: str) -> str:
    return f'layers {{ layer {{ name: "l" {settings} }} }}'


def test_every_type() -> None:
    for old, new in v0.TYPES.items():
        parsed, _ = upgrade(layer_of(f'type: "{old}"'))
        assert parsed.message == net(f'layer {{ name: "l" type: "{V1_TYPES[new]}" }}')
        # The V0 name is that of V1, in small letters, but for these.
        others = {"conv": "CONVOLUTION", "images": "IMAGE_DATA", "innerproduct": "INNER_PRODUCT", "pool": "POOLING"}
        assert pb.V1LayerParameter.LayerType.Name(new) == others.get(old, old.upper())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            'type: "conv" num_output: 2 biasterm: false pad: 1 kernelsize: 3 group: 2 stride: 4 '
            "weight_filler { std: 2 } bias_filler { value: 1 } blobs_lr: [1, 2] weight_decay: 3 blobs { num: 7 }",
            'type: "Convolution" convolution_param { num_output: 2 bias_term: false pad: 1 kernel_size: 3 group: 2 '
            "stride: 4 weight_filler { std: 2 } bias_filler { value: 1 } } "
            "param { lr_mult: 1 decay_mult: 3 } param { lr_mult: 2 } blobs { num: 7 }",
        ),
        (
            'type: "innerproduct" num_output: 2 biasterm: true weight_filler { std: 2 } bias_filler { value: 1 }',
            'type: "InnerProduct" inner_product_param { num_output: 2 bias_term: true weight_filler { std: 2 } '
            "bias_filler { value: 1 } }",
        ),
        (
            'type: "pool" pool: STOCHASTIC kernelsize: 3 stride: 2 pad: 1',
            'type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 3 stride: 2 pad: 1 }',
        ),
        ('type: "dropout" dropout_ratio: 0.3', 'type: "Dropout" dropout_param { dropout_ratio: 0.3 }'),
        (
            'type: "lrn" local_size: 3 alpha: 2 beta: 4 k: 5',
            'type: "LRN" lrn_param { local_size: 3 alpha: 2 beta: 4 k: 5 }',
        ),
        (
            'type: "data" source: "s" batchsize: 2 rand_skip: 3 scale: 4 meanfile: "m" cropsize: 5 mirror: true',
            'type: "Data" data_param { source: "s" batch_size: 2 rand_skip: 3 } '
            'transform_param { scale: 4 mean_file: "m" crop_size: 5 mirror: true }',
        ),
        (
            'type: "images" source: "s" batchsize: 2 rand_skip: 3 new_height: 4 new_width: 5 shuffle_images: true',
            'type: "ImageData" image_data_param { source: "s" batch_size: 2 rand_skip: 3 new_height: 4 new_width: 5 '
            "shuffle: true }",
        ),
        (
            'type: "window_data" source: "s" batchsize: 2 det_fg_threshold: 0.1 det_bg_threshold: 0.2 '
            'det_fg_fraction: 0.3 det_context_pad: 4 det_crop_mode: "square"',
            'type: "WindowData" window_data_param { source: "s" batch_size: 2 fg_threshold: 0.1 bg_threshold: 0.2 '
            'fg_fraction: 0.3 context_pad: 4 crop_mode: "square" }',
        ),
        (
            'type: "hdf5_data" source: "s" batchsize: 2',
            'type: "HDF5Data" hdf5_data_param { source: "s" batch_size: 2 }',
        ),
        (
            'type: "hdf5_output" hdf5_output_param { file_name: "f" }',
            'type: "HDF5Output" hdf5_output_param { file_name: "f" }',
        ),
        ('type: "infogain_loss" source: "s"', 'type: "InfogainLoss" infogain_loss_param { source: "s" }'),
        ('type: "concat" concat_dim: 0', 'type: "Concat" concat_param { concat_dim: 0 }'),
    ],
)
def test_settings(old: str, new: str) -> None:
    parsed, notes = upgrade(layer_of(old))
    assert parsed.message == net(f'layer {{ name: "l" {new} }}')
    assert not any(note.lossy for note in notes)


def test_no_setting_is_forgotten() -> None:
    known = {*v0.SETTINGS, *v0._TRANSFORMATION, *v0._OF_LAYER, "type", "hdf5_output_param"}
    assert known == {field.name for field in pb.V0LayerParameter.DESCRIPTOR.fields}
    for targets, name in v0.SETTINGS.values():
        for layer_type, param in targets.items():
            assert layer_type in v0.TYPES
            message = pb.V1LayerParameter.DESCRIPTOR.fields_by_name[param].message_type
            assert message and message.fields_by_name[name]


def test_a_setting_that_the_type_does_not_have_is_dropped_with_a_note() -> None:
    parsed, notes = upgrade('layers { layer { name: "l" type: "relu"\nnum_output: 3 new_num: 1 } }')
    assert parsed.message == net('layer { name: "l" type: "ReLU" }')
    # Caffe's words, up to the semicolon.
    assert [str(note) for note in notes if note.lossy] == [
        'n.prototxt:2:1: layer "l": Unknown parameter num_output for layer type relu; it is ignored',
        'n.prototxt:2:15: layer "l": Unknown parameter new_num for layer type relu; it is ignored',
    ]


def test_places() -> None:
    parsed, _ = upgrade(
        'input: "x" input_dim: [1,1,9,9]\nlayers { layer { name: "p" type: "padding"\npad: 2 } bottom: "x" top: "y" }\n'
        'layers { layer {\nname: "c" type: "conv"\nblobs_lr: 1 blobs_lr: 2\nweight_filler {\nstd: 2 }\nscale: 3 }\n'
        'bottom: "y" }'
    )
    lines = {
        ("name",): 5,
        ("type",): 5,
        ("param",): 6,
        ("param", 1, "lr_mult"): 6,
        ("convolution_param", "pad"): 3,
        ("convolution_param", "weight_filler"): 7,
        ("convolution_param", "weight_filler", "std"): 8,
        ("transform_param", "scale"): 9,
        ("bottom", 0): 10,
        (): 4,
    }
    assert {where: parsed.origin("layer", 1, *where).line for where in lines} == lines
    assert not [key for key in parsed.origins if "layers" in key or key[2:3] == ("layer",)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'layers { layer { name: "c"\ntype: "convv" } }',
            '2:1: layer "c": unknown layer type "convv"; did you mean "conv"?',
        ),
        (
            'layers { layer { name: "c" type: "conv" }\nblobs_lr: 1 }',
            '2:1: layer "c": "blobs_lr" is of the V1 format, but the net has layers of the V0 format, '
            "layers { layer { … } }; write all of them in one",
        ),
        (
            'layers { layer { name: "c" type: "relu" } }\nlayers {\nname: "d" type: RELU }',
            '3:1: layer "d": "name" is of the V1 format, but the net has layers of the V0 format, '
            "layers { layer { … } }; write all of them in one",
        ),
        (
            'layers { layer { name: "i" type: "images"\nnew_height: -1 } }',
            '2:1: layer "i": new_height must not be negative, found: -1',
        ),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    assert refusal(text) == message
