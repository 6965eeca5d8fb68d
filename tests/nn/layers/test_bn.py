"""BN: SegNet's and PSPNet's, told apart by their fields; PSPNet's by hand."""

from __future__ import annotations

import torch

from bpt.config.proto import bpt_pb2 as pb
from tests.support.golden_cases import recorded
from tests.support.gradient_checker import check_gradients
from tests.support.one_layer import error_of, one_layer, randomise, tops_of

X = torch.rand(3, 2, 4, 5, generator=torch.Generator().manual_seed(1))


def by_channel(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(0, 1).flatten(1)


def test_segnets_further_tops_are_mean_and_variance() -> None:
    layer = randomise(one_layer('type: "BN" bn_param { bn_mode: LEARN }', X.shape, tops=3, phase=pb.TEST))
    top, mean, variance = tops_of(layer, X)
    assert mean.shape == variance.shape == (1, 2, 1, 1)
    torch.testing.assert_close(mean.flatten(), by_channel(X).mean(1))
    torch.testing.assert_close(variance.flatten(), by_channel(X).var(1, correction=0))
    scale, shift = layer.blobs
    torch.testing.assert_close(top, (X - mean) / variance.sqrt() * scale + shift)


def test_pspnets_moves_its_statistics_and_tests_by_them() -> None:
    body = 'type: "BN" bn_param { slope_filler { value: 2 } bias_filler { value: 0.5 } momentum: 0.75 eps: 0.01 }'
    layer = one_layer(body, X.shape)
    assert [blob.flatten().tolist() for blob in layer.blobs] == [[2, 2], [0.5, 0.5], [0, 0], [0, 0]]
    assert [blob.requires_grad for blob in layer.blobs] == [True, True, False, False]
    mean, variance = by_channel(X).mean(1), by_channel(X).var(1, correction=0)
    for _ in range(2):
        top = layer(X)
    spread = (slice(None), None, None)
    torch.testing.assert_close(top, (X - mean[spread]) / (variance[spread] + 0.01).sqrt() * 2 + 0.5)
    torch.testing.assert_close(layer.blobs[2].flatten(), mean * (0.25 + 0.75 * 0.25))
    torch.testing.assert_close(layer.blobs[3].flatten(), variance * (0.25 + 0.75 * 0.25))
    layer.eval()
    stored_mean, stored_variance = (layer.blobs[index].clone() for index in (2, 3))
    torch.testing.assert_close(layer(X), (X - stored_mean) / (stored_variance + 0.01).sqrt() * 2 + 0.5)
    assert torch.equal(layer.blobs[2], stored_mean)


def test_a_frozen_one_learns_nothing() -> None:
    layer = one_layer('type: "BN" bn_param { slope_filler { value: 2 } frozen: true }', X.shape)
    assert not any(blob.requires_grad for blob in layer.blobs)
    before = [blob.clone() for blob in layer.blobs]
    torch.testing.assert_close(layer(X), X / torch.tensor(1 + 1e-5).sqrt() * 2)
    assert all(map(torch.equal, layer.blobs, before))


def test_which_one_is_meant() -> None:
    four = 'type: "BN" param { lr_mult: 1 } param { lr_mult: 1 } param { lr_mult: 0 } param { lr_mult: 0 }'
    assert len(one_layer(four, X.shape).blobs) == 4
    assert len(one_layer('type: "BN" param { lr_mult: 1 } param { lr_mult: 1 }', X.shape).blobs) == 2
    assert error_of('type: "BN"', (1, 2, 3, 4)) == (
        "may be SegNet's BN or PSPNet's: write bn_param { bn_mode: LEARN } for SegNet's, or bn_param { frozen: "
        "false } for PSPNet's, whose weights have four blobs"
    )
    assert error_of('type: "BN" bn_param { bn_mode: LEARN momentum: 1 }', (1, 2, 3, 4)) == (
        "bn_mode is of SegNet's BN and momentum of PSPNet's; take out the fields of one"
    )
    assert len(one_layer('type: "BN" bn_param { eps: 1 }', X.shape).blobs) == 4
    assert len(one_layer('type: "BN" bn_param { eps: 1 bn_mode: LEARN }', X.shape).blobs) == 2
    assert "one top" in error_of('type: "BN" bn_param { frozen: true }', (1, 2, 3, 4), tops=2)
    # A fork with SegNet's layer was recorded with PSPNet's fields, which it reads over: two blobs, by the batch.
    case = recorded("BN")[0][2]
    assert (case["desc"], case["n_params"]) == ("psp_test", 2)


def test_segnets_eps() -> None:
    text = 'type: "BN" bn_param { bn_mode: LEARN eps: 3 scale_filler { type: "constant" value: 2 } }'
    x = torch.tensor([[0.0, 2], [1, 4]]).view(2, 2, 1, 1)
    top = one_layer(text, (2, 2, 1, 1))(x)
    # Means 0.5 and 3; biased variances 0.25 and 1; 2 · ±0.5 / sqrt(3.25) and 2 · ±1 / sqrt(4).
    torch.testing.assert_close(top.flatten(), torch.tensor([-1 / 3.25**0.5, -1, 1 / 3.25**0.5, 1]))
    check_gradients(text, (3, 2, 2, 2))
