"""The update rules against a plain float64 reference on tensors of many sizes and layouts, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bpt.config.optim_spec import OptimSpec
from bpt.engine.optim.rules import UPDATE_RULES, LearnableParam, UpdateRule, violations
from bpt.engine.optim.tensor_group import PIECE
from tests.engine.optim.reference import Reference
from tests.support.golden_cases import assert_close
from tests.support.marks import slow
from tests.support.training import optim_of

RULES = {
    "SGD": "momentum: 0.9",
    "Nesterov": "momentum: 0.8",
    # They divide a gradient by about itself; a small delta would magnify the rounding of small gradients.
    "AdaGrad": "delta: 0.01",
    "RMSProp": "rms_decay: 0.9 delta: 0.01",
    "AdaDelta": "momentum: 0.95 delta: 1e-3",
    "Adam": "momentum: 0.9 momentum2: 0.99 delta: 1e-4",
}
REGULARISED = {
    "plain": "",
    "L2": "weight_decay: 0.05",
    "L1": 'weight_decay: 0.05 regularization_type: "L1"',
    "clipped": "weight_decay: 0.05 clip_gradients: 2.5 iter_size: 3",
}
TOLERANCE = 1e-5
RATES = (0.1, 0.1, 0.03, 0.2)

# One alone in several pieces, one that needs several axes in memory, a scalar, many small ones in several batches.
SHAPES = [(3, PIECE - 7), (6, 5, 4, 3), (), (1,), *[(PIECE // 3,)] * 4, (16, 2, 1, 1)]
LR_MULTS = [1.0, 2.0, 1.0, 0.5, 1.0, 1.0, 2.0, 1.0, 1.0]
DECAY_MULTS = [1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 2.0]


def params_of(arrays: list[np.ndarray]) -> list[LearnableParam]:
    values = [torch.from_numpy(array.copy()) for array in arrays]
    values[1] = values[1].contiguous(memory_format=torch.channels_last)
    return [
        LearnableParam(f"l{index}/0", nn.Parameter(value), lr, decay)
        for index, (value, lr, decay) in enumerate(zip(values, LR_MULTS, DECAY_MULTS, strict=True))
    ]


def drawn(seed: int, size: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(size * rng.standard_normal(shape), np.float32) for shape in SHAPES]


def give(params: list[LearnableParam], gradients: list[np.ndarray]) -> None:
    for param, gradient in zip(params, gradients, strict=True):
        param.value.grad = torch.empty_like(param.value).copy_(torch.from_numpy(gradient))


def compare(rule: UpdateRule, reference: Reference) -> None:
    for index, weights in enumerate(reference.weights):
        ours = rule.parameters[index].value.detach().numpy()
        assert_close(ours, weights, f"weights {index}", TOLERANCE)
    for index, moment in enumerate([*reference.first, *reference.second]):
        assert_close(rule.history[index].numpy(), moment, f"history {index}", TOLERANCE)


@pytest.mark.parametrize("keep_updates", [False, slow(True)], ids=["fast", "keeping updates"])
@pytest.mark.parametrize("regularised", REGULARISED)
@pytest.mark.parametrize("kind", RULES)
def test_rule_is_caffes(kind: str, regularised: str, keep_updates: bool) -> None:
    param = optim_of(f'type: "{kind}" {RULES[kind]} {REGULARISED[regularised]}')
    assert not list(violations(param))
    params = params_of(drawn(0))
    rule = UPDATE_RULES[kind](param, params, keep_updates)
    reference = Reference(param, drawn(0), LR_MULTS, DECAY_MULTS)
    for iteration, rate in enumerate(RATES):
        gradients = drawn(iteration + 1, 0.1)
        give(params, gradients)
        rule.update(rate, iteration)
        reference.update(gradients, rate, iteration)
        assert all(p.value.grad is None for p in params)
        if rule.updates is not None:
            for index, (ours, theirs) in enumerate(zip(rule.updates, reference.updates, strict=True)):
                assert ours is not None
                assert_close(ours.numpy(), theirs, f"update {index}", TOLERANCE)
    compare(rule, reference)


@pytest.mark.parametrize("regularised", ["plain", "L2", "L1", "averaged"])
@pytest.mark.parametrize("kind", RULES)
def test_an_update_piece_by_piece(kind: str, regularised: str) -> None:
    """In any order, some by rows; what is left out, and what has no gradient, is updated with the rest."""
    param = optim_of(f'type: "{kind}" {RULES[kind]} {REGULARISED.get(regularised, "weight_decay: 0.05 iter_size: 3")}')
    params = params_of(drawn(0))
    rule = UPDATE_RULES[kind](param, params)
    reference = Reference(param, drawn(0), LR_MULTS, DECAY_MULTS)
    values = [p.value for p in params]
    for iteration, rate in enumerate(RATES):
        gradients = drawn(iteration + 1, 0.1)
        give(params, gradients)
        gradients[5][...] = 0
        values[5].grad = None
        update = rule.piecewise(rate, iteration)
        assert update is not None
        update(values[4:8][::-1], 0, None)
        update([values[1]], 2, 6)
        update([values[0]], 0, 2)
        update([values[0]], 2, 3)
        update([values[1]], 0, 2)
        update([values[2]], 0, None)
        rule.update(rate, iteration)
        reference.update(gradients, rate, iteration)
        assert all(value.grad is None for value in values)
    compare(rule, reference)


def test_what_must_see_all_gradients_is_not_updated_piece_by_piece() -> None:
    """Clipping needs their norm; and updates that are kept are whole."""
    params = params_of(drawn(0))
    assert UPDATE_RULES["SGD"](optim_of("clip_gradients: 9"), params).piecewise(0.1, 0) is None
    assert UPDATE_RULES["SGD"](optim_of(""), params, keep_updates=True).piecewise(0.1, 0) is None


def test_an_update_that_was_broken_off_is_forgotten() -> None:
    """v = 0.1 · 1 each time: 1 - 0.1 of the one that was broken off, and two whole ones."""
    params = [LearnableParam("ip/0", nn.Parameter(torch.ones(2)))]
    rule = UPDATE_RULES["SGD"](optim_of(""), params)
    for number in range(3):
        params[0].value.grad = torch.ones(2)
        update = rule.piecewise(0.1, number)
        assert update is not None
        update([params[0].value], 0, None)
        if number:
            rule.update(0.1, number)
    assert params[0].value.tolist() == pytest.approx([0.7, 0.7])


@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "Adam"])
def test_without_momentum(kind: str) -> None:
    param = optim_of(f'type: "{kind}" weight_decay: 0.05')
    params = params_of(drawn(0))
    rule = UPDATE_RULES[kind](param, params)
    reference = Reference(param, drawn(0), LR_MULTS, DECAY_MULTS)
    for iteration, rate in enumerate(RATES):
        give(params, drawn(iteration + 1))
        rule.update(rate, iteration)
        reference.update(drawn(iteration + 1), rate, iteration)
    compare(rule, reference)


@pytest.mark.parametrize("kind", RULES)
def test_clipped_to_nothing_only_decays(kind: str) -> None:
    param = optim_of(f'type: "{kind}" {RULES[kind]} weight_decay: 0.05 clip_gradients: 0')
    params = params_of(drawn(0))
    rule = UPDATE_RULES[kind](param, params)
    reference = Reference(param, drawn(0), LR_MULTS, DECAY_MULTS)
    give(params, drawn(1))
    rule.update(0.1, 0)
    reference.update(drawn(1), 0.1, 0)
    compare(rule, reference)


@pytest.mark.parametrize("kind", RULES)
def test_frozen_parameter_is_left_alone(kind: str) -> None:
    # lr_mult 0: as BatchNorm's running statistics, which momentum and weight decay must not touch.
    frozen = LearnableParam("bn/0", nn.Parameter(torch.tensor([1.0, -2.0]), requires_grad=False), lr_mult=0)
    trained = LearnableParam("ip/0", nn.Parameter(torch.tensor([1.0])))
    rule = UPDATE_RULES[kind](optim_of(f'type: "{kind}" {RULES[kind]} weight_decay: 0.5'), [frozen, trained])
    frozen.value.grad, trained.value.grad = torch.ones(2), torch.ones(1)
    rule.update(0.1, 0)
    assert frozen.value.tolist() == [1, -2]
    assert frozen.value.grad is None
    assert [h.tolist() for h in rule.history[::2]] == [[0, 0]] * rule.moments
    assert trained.value.item() != 1


def test_parameter_without_gradient_has_a_zero_one() -> None:
    # As in Caffe, where a layer that does not reach the loss still decays: v = 0.1 · (0 + 0.5 · 2) = 0.1.
    param = LearnableParam("ip/0", nn.Parameter(torch.tensor([2.0])))
    rule = UPDATE_RULES["SGD"](optim_of("momentum: 0.5 weight_decay: 0.5"), [param])
    rule.update(0.1, 0)
    assert param.value.item() == pytest.approx(1.9)
    # And v = 0.5 · 0.1 + 0.1 · 0.5 · 1.9 = 0.145.
    rule.update(0.1, 1)
    assert param.value.item() == pytest.approx(1.755)


def test_history_follows_the_weights_layout() -> None:
    arrays = drawn(0)
    param = optim_of('type: "Adam" momentum: 0.9')
    params = params_of(arrays)
    rule = UPDATE_RULES["Adam"](param, params)
    reference = Reference(param, arrays, LR_MULTS, DECAY_MULTS)
    layouts = [torch.channels_last, torch.contiguous_format, torch.channels_last]
    for iteration, layout in enumerate(layouts):
        params[1].value.data = params[1].value.data.contiguous(memory_format=layout)
        gradients = drawn(iteration + 1)
        give(params, gradients)
        # A gradient that somebody set in another layout than its weight's.
        params[1].value.grad = torch.from_numpy(gradients[1]).contiguous()
        rule.update(0.1, iteration)
        reference.update(gradients, 0.1, iteration)
        assert all(h.is_contiguous(memory_format=layout) for h in (rule.history[1], rule.history[len(params) + 1]))
    compare(rule, reference)


@pytest.mark.parametrize("kind", RULES)
def test_history_in_caffes_order(kind: str) -> None:
    params = params_of(drawn(0))
    rule = UPDATE_RULES[kind](optim_of(f'type: "{kind}"'), params)
    assert [tuple(h.shape) for h in rule.history] == SHAPES * (2 if kind in ("AdaDelta", "Adam") else 1)
    assert all((h == 0).all() for h in rule.history)


def test_shares_no_memory_with_gradients_after_update() -> None:
    param = LearnableParam("ip/0", nn.Parameter(torch.zeros(3)))
    rule = UPDATE_RULES["SGD"](optim_of("momentum: 0.5"), [param])
    given = torch.ones(3)
    param.value.grad = given
    rule.update(1, 0)
    given.fill_(7)
    assert param.value.tolist() == [-1, -1, -1]
    assert rule.history[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('type: "Adm"', 'unknown solver type "Adm"; did you mean "Adam"?'),
        (
            'type: "LBFGS"',
            'unknown solver type "LBFGS" (known: AdaDelta, AdaGrad, Adam, AdamW, LAMB, Nesterov, RMSProp, SGD)',
        ),
        ('regularization_type: "L3"', 'unknown regularization_type "L3" (known: L1, L2)'),
        ("momentum: 1", "momentum is 1; it must be at least 0 and below 1"),
        ("momentum: -0.9", "momentum is -0.9; it must be at least 0 and below 1"),
        ("momentum: nan", "momentum is nan; it must be at least 0 and below 1"),
        ("weight_decay: -1", "weight_decay is -1; it must be at least 0"),
        ("clip_gradients: nan", "clip_gradients is nan; it must be finite"),
        ("iter_size: 0", "iter_size is 0; it must be at least 1"),
        ('type: "AdaGrad" momentum: 0.9', "momentum cannot be used with AdaGrad; leave it out"),
        ('type: "RMSProp" momentum: 0.9', "momentum cannot be used with RMSProp; leave it out"),
        ('type: "RMSProp" rms_decay: 1', "rms_decay is 1; it must be at least 0 and below 1"),
        ('type: "AdaDelta" delta: 0', "delta is 0; it must be above 0"),
        ('type: "Adam" delta: -1', "delta is -1; it must be above 0"),
        ('type: "Adam" momentum2: 1', "momentum2 is 1; it must be at least 0 and below 1"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    first, *_ = violations(optim_of(text))
    assert first.message == message


def test_a_violation_has_its_field() -> None:
    assert [each.field for each in violations(OptimSpec(type="sdg"))] == [("type",)]
    assert [each.field for each in violations(OptimSpec(momentum=2, delta=0, type="Adam"))] == [
        ("momentum",),
        ("delta",),
    ]
