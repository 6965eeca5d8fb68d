"""Digests: what ranks compare to see that they have read the same."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from bpt.graph.layer_graph import LayerGraph
from bpt.proto import bpt_pb2 as pb
from bpt.proto.fields import without
from bpt.state.integrity import file_digest

if TYPE_CHECKING:
    from bpt.plan.spec import RunPlan

_OF_A_HOST = (
    "net", "train_net", "test_net", "weights", "snapshot_prefix", "solver_mode", "device_id",
    "parallel_param.balance_param.profile",
)  # fmt: skip


def net_digest(graph: LayerGraph) -> str:
    """16 hexadecimal digits that tell a net's layers and shapes from those of any other.

    Where its data lie may differ from host to host, and does not count.
    """
    content = hashlib.blake2b(digest_size=8)
    for node in graph.nodes:
        content.update(node.without_places().SerializeToString(deterministic=True))
    for edge in graph.edges:
        content.update(repr(edge.shape).encode())
    return content.hexdigest()


def solver_digest(plan: RunPlan) -> str:
    """16 hexadecimal digits that tell a solver's text, with all that was laid over it, from any other.

    Where files lie and which device computes may differ from host to host, and does not count.
    """
    return hashlib.blake2b(plan.shared_text.encode(), digest_size=8).hexdigest()


def relevant_solver(param: pb.SolverParameter) -> pb.SolverParameter:
    """``param`` with only what must be the same on all hosts."""
    relevant = without(param, *_OF_A_HOST)
    relevant.parallel_param.balance_param.SetInParent()  # the texts in replay logs have it, set or not
    return relevant


def file_fact(path: str) -> str:
    """16 hexadecimal digits that tell a file's content from any other; "missing" if it cannot be read."""
    try:
        return file_digest(path)[:8].hex()
    except OSError:
        return "missing"
