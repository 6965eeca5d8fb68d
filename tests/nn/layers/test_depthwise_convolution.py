"""DepthwiseConvolution and ConvolutionDepthwise: a Convolution under other names."""

from __future__ import annotations

import torch

from tests.support.one_layer import error_of, one_layer, randomise

SETTINGS = "num_output: 3 group: 3 kernel_size: 3 stride: 2 pad: 1"


def body(kind: str, settings: str = SETTINGS) -> str:
    return f'type: "{kind}" convolution_param {{ {settings} }}'


def test_is_a_convolution() -> None:
    layer, plain = (randomise(one_layer(body(kind), (2, 3, 5, 7))) for kind in ("DepthwiseConvolution", "Convolution"))
    assert [blob.shape for blob in layer.blobs] == [(3, 1, 3, 3), (3,)]
    x = torch.rand(2, 3, 5, 7)
    assert torch.equal(layer(x), plain(x))


def test_by_hand() -> None:
    layer = one_layer(body("DepthwiseConvolution", "num_output: 2 group: 2 kernel_size: 2"), (1, 2, 2, 2))
    with torch.no_grad():
        layer.blobs[0].copy_(torch.tensor([[[[1.0, 0], [0, 1]]], [[[0.0, 1], [1, 0]]]]))
    top = layer(torch.arange(8.0).reshape(1, 2, 2, 2))
    assert top.flatten().tolist() == [0 + 3, 5 + 6]


def test_another_fork_has_a_group_for_each_channel() -> None:
    x = torch.rand(2, 3, 5, 7)
    for settings in (SETTINGS, SETTINGS.replace("group: 3", ""), SETTINGS.replace("group: 3", "group: 2")):
        layer = randomise(one_layer(body("ConvolutionDepthwise", settings), (2, 3, 5, 7)))
        assert torch.equal(layer(x), randomise(one_layer(body("DepthwiseConvolution"), (2, 3, 5, 7)))(x))
    assert error_of(body("ConvolutionDepthwise", "num_output: 2 kernel_size: 1"), (1, 3, 2, 2)) == (
        "the 3 channels of a bottom of shape (1, 3, 2, 2) do not divide into 2 groups"
    )


def test_groups_are_not_guessed() -> None:
    assert one_layer(body("DepthwiseConvolution", "num_output: 3 kernel_size: 1"), (1, 3, 2, 2)).blobs[0].shape == (
        (3, 3, 1, 1)
    )
    assert error_of(body("DepthwiseConvolution", "num_output: 2 group: 3 kernel_size: 1"), (1, 3, 2, 2)) == (
        "num_output 2 does not divide into 3 groups"
    )
