"""Q, counted by hand, and by the Accuracy layer."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.engine.operator import Operator
from bpt.graph.part import Part
from bpt.nn.net import Net
from bpt.train.metrics import CorrectCount, LocalAccuracy
from bpt.train.metrics.classifier_layer import classifying_node, find_classifier
from tests.support.net_cases import graph_in, read_net, with_inputs
from tests.support.task_dag_nets import INCEPTION, assert_same, dag_operator, image_net, net_of, pass_over
from tests.train.metrics.nets import ACCURACY, CORRECT, LABELS, LOSS, SCORES, operator_of, run


@pytest.mark.parametrize("layers", [LOSS % "", ACCURACY % "", ACCURACY % "accuracy_param { top_k: 2 }"])
def test_correct_ones_are_counted_over_passes(layers: str) -> None:
    operator = operator_of(layers)
    watch = LocalAccuracy(operator.net)
    assert watch.classifies
    run(operator)
    run(operator, SCORES.flip(1))  # now only the second is right: (1, 2, 0) with label 1
    assert watch.take() == CorrectCount(CORRECT + 1, 8)
    run(operator)
    assert watch.take() == CorrectCount(CORRECT, 4)
    assert watch.take() == CorrectCount(0, 0)


def test_ratio() -> None:
    assert CorrectCount(3, 4).ratio == 0.75
    assert CorrectCount(0, 0).ratio == 0
    assert CorrectCount(0, 0, classifies=False).ratio == 1


def test_a_net_that_does_not_classify() -> None:
    operator = operator_of('layer { type: "EuclideanLoss" bottom: "x" bottom: "y" }', labels=(4, 3))
    with LocalAccuracy(operator.net) as watch:
        run(operator, labels=SCORES)
        assert not watch.classifies
        assert watch.take() == CorrectCount(0, 0, classifies=False)
        assert watch.take().ratio == 1


def test_ignored_labels_and_another_axis() -> None:
    """Classes stand on the last axis of (2, 2, 3); the label 255, which is no class, does not count."""
    for layers in (
        LOSS % "softmax_param { axis: -1 } loss_param { ignore_label: 255 }",
        ACCURACY % "accuracy_param { axis: 2 ignore_label: 255 }",
    ):
        operator = operator_of(layers, (2, 2, 3), (2, 2))
        watch = LocalAccuracy(operator.net)
        run(operator, SCORES.view(2, 2, 3), torch.tensor([[0.0, 255.0], [2.0, 0.0]]))
        assert watch.take() == CorrectCount(1, 3)
        run(operator, SCORES.view(2, 2, 3), torch.full((2, 2), 255.0))
        assert watch.take() == CorrectCount(0, 0)


def test_every_position_counts() -> None:
    operator = operator_of(LOSS % "", (1, 3, 2, 2), (1, 1, 2, 2))
    watch = LocalAccuracy(operator.net)
    run(operator, SCORES.T.reshape(1, 3, 2, 2), LABELS.view(1, 1, 2, 2))
    assert watch.take() == CorrectCount(CORRECT, 4)


def test_nan_is_never_right() -> None:
    operator = operator_of(LOSS % "")
    watch = LocalAccuracy(operator.net)
    nan = torch.nan
    scores = [[nan, 1.0, 0.0], [nan, 2.0, 1.0], [0.0, 1.0, 2.0], [nan, nan, nan]]
    run(operator, torch.tensor(scores))
    assert watch.take() == CorrectCount(1, 4)
    operator = operator_of(ACCURACY % "", (2, 1), (2,))
    watch = LocalAccuracy(operator.net)
    run(operator, torch.tensor([[nan], [1.0]]), torch.zeros(2))
    assert watch.take() == CorrectCount(1, 2)


def test_as_the_accuracy_layer_counts() -> None:
    """Also with ties, which small whole numbers have many of."""
    operator = operator_of((LOSS % "") + ACCURACY % "", (500, 4), (500,))
    watch = LocalAccuracy(operator.net)
    generator = torch.Generator().manual_seed(1)
    run(
        operator,
        torch.randint(0, 4, (500, 4), generator=generator).float(),
        torch.randint(0, 4, (500,), generator=generator).float(),
    )
    shown = operator.values[operator.net.graph.blobs["a"].index].item()
    assert 0.1 < shown < 0.3
    assert watch.take().ratio == pytest.approx(shown, abs=1e-6)


@pytest.mark.parametrize(
    ("layers", "watched"),
    [
        ("0.3 0.3 1 acc", 2), ("1 0.3 acc", 0), ("0.5 0.5", 1), ("acc acc", 1), ("0 acc", 0),
    ],
)  # fmt: skip
def test_which_of_several(layers: str, watched: int) -> None:
    text = ""
    for number, layer in enumerate(layers.split()):
        kind, weight = ("Accuracy", "") if layer == "acc" else ("SoftmaxWithLoss", f"loss_weight: {layer}")
        text += f'layer {{ name: "{number}" type: "{kind}" bottom: "x" bottom: "y" top: "{number}" {weight} }}\n'
    classifier = find_classifier(operator_of(text).net)
    assert classifier is not None and classifier.layer.spec.name == str(watched)


def test_googlenet_is_judged_by_its_last_classifier() -> None:
    shapes = {"data": (1, 3, 224, 224), "label": (1,)}
    graph = graph_in(with_inputs(read_net("googlenet/train_val.prototxt"), pb.TRAIN, shapes), pb.TRAIN)
    node = classifying_node(graph)
    assert node is not None and node.name == "loss3/loss3"


def test_a_loss_on_another_rank() -> None:
    net = Net(operator_of(LOSS % "").net.graph, part=Part(frozenset({0, 1})))
    watch = LocalAccuracy(net)
    assert watch.classifies
    assert watch.take() == CorrectCount(0, 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_inner_layer_is_watched_too(threads: int) -> None:
    """The same numbers with and without a watch, the same count as by SegmentOperator."""
    graph = image_net(INCEPTION)
    plain = pass_over(Operator(net_of(graph)), passes=3)
    net = net_of(graph)
    expected = LocalAccuracy(net)
    assert_same(pass_over(Operator(net), passes=3), plain, 0)
    expected.close()
    other = net_of(graph)
    watch = LocalAccuracy(other)
    operator = dag_operator(other, threads=threads)
    assert_same(pass_over(operator, passes=3), plain, 1e-9)
    operator.compute.close()
    tally = watch.take()
    assert tally == expected.take()
    assert tally.counted == 18


def test_nothing_is_kept_of_a_pass() -> None:
    operator = operator_of(LOSS % "")
    watch = LocalAccuracy(operator.net)
    seen: list[weakref.ref[torch.Tensor]] = []
    operator.net.layers[-1].register_forward_hook(lambda layer, bottoms, tops: seen.append(weakref.ref(bottoms[0])))
    run(operator)
    operator.reset()
    gc.collect()
    assert [reference() for reference in seen] == [None]
    watch.close()
    run(operator)
    assert watch.take() == CorrectCount(CORRECT, 4)
