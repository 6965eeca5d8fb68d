from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.nn.pass_context import CurrentPass, PassContext
from tests.support.golden_cases import assert_close, recorded
from tests.support.one_layer import error_of, gradient_of, one_layer


def dropout(ratio: float) -> str:
    return f'type: "Dropout" dropout_param {{ dropout_ratio: {ratio} }}'


def test_caffes_recording_of_a_random_mask() -> None:
    """Caffe's mask cannot be drawn again, so the relations are checked that hold in the recording, too."""
    arrays = recorded("Dropout")[1]
    x, diff = (torch.from_numpy(arrays[f"01_train_random/s0/{name}"]) for name in ("in/x", "topdiff/y"))
    theirs_kept = torch.from_numpy(arrays["01_train_random/s0/top/y"]) != 0
    assert_close((x * theirs_kept / 0.6).numpy(), arrays["01_train_random/s0/top/y"], "Caffe's top")
    assert_close((diff * theirs_kept / 0.6).numpy(), arrays["01_train_random/s0/botdiff/x"], "Caffe's diff")
    x.requires_grad_()
    top = one_layer(dropout(0.4), tuple(x.shape))(x)
    kept = top != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(top, x * kept / 0.6)
    top.backward(diff)
    torch.testing.assert_close(x.grad, diff * kept / 0.6)


def test_ratio() -> None:
    # 100,000 draws at 0.7: the standard deviation of the mean is sqrt(0.7 · 0.3 / 1e5) = 0.0015.
    top = one_layer(dropout(0.7), (1000, 100))(torch.ones(1000, 100))
    assert abs((top == 0).float().mean() - 0.7) < 0.0075


def test_mask_is_new_in_each_pass_and_layer_and_the_same_when_repeated() -> None:
    context = PassContext(seed=5)
    x = torch.ones(20, 20)
    layer: Any = one_layer(dropout(0.5), (20, 20), context=context)
    masks = []
    current = CurrentPass(context)
    layer.follow(current)
    for iteration, number in ((0, 0), (0, 1), (1, 0)):
        current.context = replace(context, iteration=iteration, pass_number=number)
        masks.append(layer(x))
        assert torch.equal(layer(x), masks[-1])
    layer.name = "another"
    masks.append(layer(x))
    current.context = replace(current.context, seed=6)
    masks.append(layer(x))
    assert all(not torch.equal(a, b) for index, a in enumerate(masks) for b in masks[:index])


@pytest.mark.parametrize(("ratio", "phase"), [(0, pb.TRAIN), (0.9, pb.TEST)])
def test_identity(ratio: float, phase: int) -> None:
    x = torch.rand(3, 4)
    assert torch.equal(one_layer(dropout(ratio), (3, 4), phase=phase)(x), x)


@pytest.mark.parametrize("ratio", [1, -0.5, 1.5])
def test_errors(ratio: float) -> None:
    assert error_of(dropout(ratio), (2, 3)) == f"dropout_ratio must be at least 0 and below 1, not {ratio:g}"


SCALES_TESTS = 'type: "Dropout" dropout_param { dropout_ratio: 0.75 scale_train: false }'


@pytest.mark.parametrize("phase", [pb.TRAIN, pb.TEST])
def test_scale_train_false(phase: int) -> None:
    """A fork of Faster R-CNN's: no factor in training, a quarter of all in tests."""
    x = torch.full((50, 4), 8.0, requires_grad=True)
    layer = one_layer(SCALES_TESTS, (50, 4), phase=phase)
    top = layer(x)
    top.sum().backward()
    if phase == pb.TEST:
        assert (top == 2).all() and bool((gradient_of(x) == 0.25).all())
    else:
        assert set(top.unique().tolist()) == {0.0, 8.0}
        assert torch.equal(gradient_of(x), top / 8)
    in_place = layer.overwrite(0, x.detach().clone())
    assert torch.equal(in_place, top)
