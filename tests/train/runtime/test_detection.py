"""Tests of detections: the mean average precision over all batches, on one rank and on several."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bpt.config.proto import bpt_pb2 as pb
from bpt.data.detection.average_precision import precisions_of
from bpt.engine.operator import Operator
from bpt.graph.segments import whole
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.system.comm.base import Communicator
from bpt.system.comm.serial import SerialCommunicator
from bpt.train.runtime.outputs import Outputs
from bpt.train.runtime.testing import ScoresOfTest, run_test
from tests.support.detecting_net import detecting_net
from tests.support.doubles.thread_ranks import run_ranks
from tests.support.golden_cases import graph_of
from tests.support.layer_ranks import shares_of


@pytest.fixture
def net(tmp_path: Path) -> str:
    return detecting_net(tmp_path)


def score(text: str, context: PassContext, ranks: Communicator) -> ScoresOfTest:
    tested = Net(graph_of(text, pb.TEST), context)
    try:
        operator = Operator(tested, whole(tested.graph))
        found = run_test(operator, 2, outputs=Outputs(tested, ranks))
    finally:
        tested.close()
    assert found is not None
    return found


def test_over_batches_and_ranks(net: str) -> None:
    alone = score(net, PassContext(), SerialCommunicator())
    # Of label 1 there are 7 objects, of which 5 are found (image 5's is of label 2, the others stand in place 3), by 24
    # detections with equal scores: in places 1, 5 (image 1), 9 (image 2), …, as images have three each.
    right = {0, 4, 8, 12, 20}
    precisions = [(found + 1) / (place + 1) for found, place in enumerate(sorted(right))]
    assert alone.precisions["detection_eval"].by_label[1] == pytest.approx(sum(precisions) / 7)
    assert alone.precisions["detection_eval"].by_label[2] == pytest.approx(1 / 17)  # the second of image 5
    assert float(alone.outputs["detection_eval"]) == pytest.approx((sum(precisions) / 7 + 1 / 17) / 2)

    def run(ranks: Communicator) -> ScoresOfTest:
        shares = shares_of((3, 0, 1))
        context = PassContext(split=lambda samples: shares[ranks.rank], ranks=3)
        return score(net, context, ranks)

    for theirs in run_ranks(3, run):
        assert theirs.precisions == alone.precisions
        assert theirs.outputs == alone.outputs


def test_precisions_by_hand() -> None:
    rows = [[-1, 1, 2, -1, -1], [-1, 2, 1, -1, -1], [-1, 3, 1, -1, -1],
            [0, 1, 0.9, 1, 0], [0, 1, 0.8, 0, 1], [0, 1, 0.7, 0, 0], [0, 2, 0.5, 0, 1],
            [-1, 1, 2, -1, -1], [-1, 2, 0, -1, -1], [-1, 3, 0, -1, -1],
            [0, 1, 0.6, 1, 0], [0, 2, 0.6, 1, 0]]  # fmt: skip
    found = precisions_of(torch.tensor(rows)[None, None], "Integral")
    # Of label 1 two of four objects, by the first and the third that count; of 2 the best is right; of 3 nothing.
    assert found.by_label == {1: pytest.approx((1 + 2 / 3) / 4), 2: pytest.approx(1), 3: 0}
    assert found.mean == pytest.approx((5 / 12 + 1) / 3)
