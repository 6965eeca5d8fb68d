"""Padding layers of V0 nets."""

from __future__ import annotations

import pytest

from tests.proto.upgrade.upgraded import net, refusal, upgrade

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
def test_mistakes(layers: str, message: str) -> None:
    assert refusal(INPUT + layers) == message
