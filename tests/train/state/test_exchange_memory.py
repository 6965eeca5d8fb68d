"""Which memory of a snapshot a run of other settings does not continue from, and what is said of it."""

from __future__ import annotations

import pytest

from bpt.config.proto import bpt_pb2 as pb
from bpt.train.state.exchange_memory import lost_memory
from tests.support.training import solver_of

STEPPED = "outer_param { type: NESTEROV }"
LOCAL = [("Local", "ip/0"), ("Local", "ip/0 moment 0")]
LOCAL_STEPPED = [*LOCAL, ("Local", "ip/0, ip/1 version"), ("Local", "ip/0, ip/1 outer momentum")]
AGWU = [("outer", "outer momentum"), ("outer", "submission of worker 1")]
AVERAGED = "made on {} with weights of their own: this run continues from the average"
UNUSED, BEGINS = "outer momentum of the snapshot is not for this run", "is not for this run: it begins at 0"
TABLE, LEFT_OUT = "submissions of workers", "had left out of their gradients is not for this run"


@pytest.mark.parametrize(
    ("made", "memory", "parallel", "exchange", "ranks", "said"),
    [
        (2, LOCAL, "", "Allreduce", 1, [AVERAGED.format("2 ranks")]),
        (2, LOCAL, "exchange: LOCAL", "Local", 2, []),
        (2, LOCAL, "", "Allreduce", 2, [AVERAGED.format("2 ranks")]),
        (2, LOCAL[1:], "exchange: LOCAL", "Local", 3, ["made on 2 ranks with moments of their own"]),
        (2, LOCAL_STEPPED, f"exchange: LOCAL {STEPPED}", "Local", 3, [BEGINS, AVERAGED.format("2 ranks")]),
        (2, LOCAL_STEPPED[3:], f"exchange: LOCAL {STEPPED}", "Local", 3, [BEGINS]),
        (2, LOCAL_STEPPED[3:], f"exchange: LOCAL {STEPPED}", "Local", 1, [UNUSED]),
        (2, LOCAL_STEPPED[3:], "exchange: LOCAL", "Local", 2, [UNUSED]),
        (2, LOCAL_STEPPED[3:], f"exchange: AGWU {STEPPED}", "Allreduce", 1, [BEGINS]),
        (1, AGWU, "update: SHARDED", "Sliced", 2, [UNUSED, TABLE]),
        (1, AGWU[:1], f"exchange: LOCAL {STEPPED}", "Local", 3, [BEGINS]),
        (1, AGWU, f"exchange: AGWU {STEPPED}", "Allreduce", 1, []),
        (1, AGWU[:1], "exchange: AGWU", "Allreduce", 1, [UNUSED]),
        (1, AGWU[:1], "", "Allreduce", 1, [UNUSED]),
        (2, [("TopK", "ip/0")], "compression_param { codec: TOPK }", "TopK", 3, [f"{LEFT_OUT}, and residuals begin"]),
        (2, [("TopK", "ip/0")], "", "Allreduce", 2, [LEFT_OUT]),
        (2, [("TopK", "ip/0")], "compression_param { codec: TOPK }", "TopK", 2, []),
    ],
)
def test_what_is_lost(
    made: int, memory: list[tuple[str, str]], parallel: str, exchange: str, ranks: int, said: list[str]
) -> None:
    entries = [pb.ExchangeMemory(rank=0, exchange=where, name=name) for where, name in memory]
    state = pb.SolverState(exchange_ranks=made, exchange_memory=entries)
    param = solver_of(f"max_iter: 1 parallel_param {{ {parallel} }}").parallel_param
    found = list(lost_memory(state, param, exchange, ranks))
    assert len(found) == len(said)
    assert all(part in words for part, words in zip(said, found, strict=True)), found
    assert ("residuals" in " ".join(found)) == ("residuals" in " ".join(said))
