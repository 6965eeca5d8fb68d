"""--set."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from bpt.base.errors import PrototxtError
from bpt.base.origin import FieldPath, Origin
from bpt.config.proto import bpt_pb2 as pb
from bpt.config.proto.merge import apply_set
from bpt.config.proto.parse import parse_text
from bpt.config.proto.text import to_text
from tests.config.proto.messages import messages

TEXT = """
base_lr: 0.1
test_iter: 5
test_iter: 6
parallel_param { num_shards: 2 pipeline_param { micro_batches: 8 } }
test_state { stage: "a" }
test_state { stage: "b" }
"""


def laid_over(*snippets: str) -> tuple[pb.SolverParameter, dict[FieldPath, Origin]]:
    parsed = parse_text(TEXT, pb.SolverParameter, "s.prototxt")
    apply_set(parsed.message, snippets, parsed.origins)
    return parsed.message, parsed.origins


def test_nothing_to_set() -> None:
    assert laid_over()[0] == laid_over("")[0] == parse_text(TEXT, pb.SolverParameter).message


def test_single_fields_are_replaced_or_added() -> None:
    param, origins = laid_over("base_lr: 0.5 max_iter: 3")
    assert (param.base_lr, param.max_iter) == (0.5, 3)
    assert str(origins["base_lr",]) == "--set 'base_lr: 0.5 max_iter: 3':1:1"
    assert str(origins["max_iter",]) == "--set 'base_lr: 0.5 max_iter: 3':1:14"


def test_lists_are_replaced() -> None:
    param, origins = laid_over("test_iter: 10 test_state {}")
    assert list(param.test_iter) == [10]
    assert list(param.test_state) == [pb.NetState()]
    assert origins["test_iter", 0].column == 1
    assert ("test_iter", 1) not in origins
    assert ("test_state", 0, "stage") not in origins


def test_lists_can_be_emptied() -> None:
    param, origins = laid_over("test_iter: []")
    assert not param.test_iter
    assert [where for where in origins if where[0] == "test_iter"] == [("test_iter",)]


def test_messages_are_merged() -> None:
    param, origins = laid_over("parallel_param { exchange: CGDP pipeline_param { schedule: DELAYED } cgdp_param {} }")
    assert param.parallel_param == pb.ParallelParameter(
        num_shards=2, exchange="CGDP", pipeline_param={"micro_batches": 8, "schedule": "DELAYED"}, cgdp_param={}
    )
    assert origins["parallel_param",].path == origins["parallel_param", "num_shards"].path == "s.prototxt"
    assert origins["parallel_param", "exchange"].path.startswith("--set")


def test_later_snippets_win() -> None:
    assert laid_over("base_lr: 1 test_iter: [1, 2]", "base_lr: 2", "test_iter: 3")[0].base_lr == 2


def test_default_values_can_be_set() -> None:
    assert laid_over('type: "SGD"')[0].HasField("type")


@pytest.mark.parametrize(
    ("snippet", "message"),
    [
        ("max_itr: 3", """SolverParameter has no field "max_itr"; did you mean "max_iter"?
  --set 'max_itr: 3'
         ^"""),
        ("base_lr=3", """expected ":" after "base_lr", found: =; write base_lr: 3
  --set 'base_lr=3'
                ^"""),
        ("base_lr: 1 base_lr: 2", """"base_lr" is given twice; first in line 1
  --set 'base_lr: 1 base_lr: 2'
                    ^"""),
        ("max_iter: 1\nbase_lr: x", """"base_lr" takes a number, found: x; at --set 'max_iter: 1\nbase_lr: x':2:10"""),
    ],
)  # fmt: skip
def test_mistakes_name_the_snippet(snippet: str, message: str) -> None:
    param = pb.SolverParameter()
    with pytest.raises(PrototxtError) as caught:
        apply_set(param, ["max_iter: 3", snippet])
    assert str(caught.value) == message
    assert param == pb.SolverParameter()


def test_required_fields_may_come_from_the_file() -> None:
    net = parse_text("layer { clip_param { min: 0 max: 1 } }", pb.NetParameter).message
    layer = net.layer[0]
    apply_set(layer, ["clip_param { max: 2 }"])
    assert layer.clip_param == pb.ClipParameter(min=0, max=2)
    with pytest.raises(PrototxtError, match='"max" is missing'):
        apply_set(pb.LayerParameter(), ["clip_param { min: 2 }"])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(messages(pb.SolverParameter), messages(pb.SolverParameter))
def test_what_a_snippet_says_holds(param: pb.SolverParameter, patch: pb.SolverParameter) -> None:
    """Laid over, a text sets its own fields and leaves the others; twice is the same as once."""
    before = pb.SolverParameter.FromString(param.SerializeToString())
    apply_set(param, [to_text(patch)])
    for field in param.DESCRIPTOR.fields:
        if not any(field is changed for changed, _ in patch.ListFields()):
            assert getattr(param, field.name) == getattr(before, field.name)
    once = pb.SolverParameter.FromString(param.SerializeToString())
    apply_set(param, [to_text(patch)])
    assert param == once
    empty = pb.SolverParameter()
    apply_set(empty, [to_text(patch)])
    assert empty == patch
