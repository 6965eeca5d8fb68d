from __future__ import annotations

import logging

import pytest

from tests.support.one_layer import one_layer

BY_SAMPLES = {  # with the shapes of all bottoms but the first
    "ContrastiveLoss": ((2, 3), (2,)),
    "EuclideanLoss": ((2, 3),),
    "HingeLoss": ((2,),),
    "MultinomialLogisticLoss": ((2,),),
}


@pytest.mark.parametrize("kind", BY_SAMPLES)
def test_loss_param_is_noticed_where_it_has_no_effect(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    body = f'type: "{kind}" loss_param {{ ignore_label: 1 }}'
    with caplog.at_level(logging.WARNING, "bpt"):
        layer = one_layer(body, (2, 3), *BY_SAMPLES[kind])
    assert caplog.messages == [f'layer "L": loss_param has no effect, since {kind} does not read it']
    assert not layer.counts_by_data(layer.spec)


def test_loss_param_is_not_noticed_where_it_counts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bpt"):
        layer = one_layer('type: "SoftmaxWithLoss" loss_param { ignore_label: 1 }', (2, 3), (2,))
    assert not caplog.text
    assert layer.counts_by_data(layer.spec) == "loss_param { ignore_label } leaves labels out of the normaliser"
