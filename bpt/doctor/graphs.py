"""The graphs of the nets, as each rank builds them from its own texts and data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bpt.doctor.findings import Finding, note, problem
from bpt.doctor.ranks import Ranks, attempt, grouped
from bpt.doctor.texts import errors_of
from bpt.graph.layer_graph import LayerGraph
from bpt.plan.nets import NetPlan
from bpt.proto import bpt_pb2 as pb
from bpt.runtime.agreement import facts_of

_TEXT = "network text"


@dataclass(frozen=True)
class Graphs:
    """What came out, the same on all ranks but for ``by_name``.

    Attributes:
        by_name: this rank's graphs, that of training first.
        findings: what is wrong; there is no plan then.
        wrong: the error if no rank can make the nets, for another reason than files that are missing.
    """

    by_name: Mapping[str, LayerGraph] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    wrong: Exception | None = None


def build_graphs(ranks: Ranks, param: pb.SolverParameter, plans: Mapping[str, NetPlan], known: Sequence[str]) -> Graphs:
    """Build the graphs of the nets and compare them; a collective call.

    Args:
        plans: the nets that this rank builds, that of training first; on rank 0 all that any rank builds.
        known: errors of this rank that have been told: a net that fails for one of them is no news.
    """
    world = ranks.world
    built = attempt(lambda: {name: plan.graph() for name, plan in plans.items()})
    is_known = any(message and message in built.message for message in known)
    answers = world.allgather((built.message, is_known, tuple(plans)))
    found = list(errors_of(ranks, ["" if told else message for message, told, _ in answers]))
    if any(message for message, _, _ in answers):
        as_first = [(message, told) for message, told, nets in answers if nets == answers[0][2]]
        everywhere = all(message and not told for message, told in as_first)
        found.append(note("not checked: it takes networks that can be built on all ranks"))
        return Graphs(findings=tuple(found), wrong=world.bcast(built.error if everywhere else None))
    graphs = built.value
    assert graphs is not None
    text = facts_of(param, next(iter(graphs.values())))[_TEXT] if graphs else ""
    shapes = world.allgather(text)
    for shape, members in grouped(shapes).items():
        if shape not in ("", shapes[0]):
            differs = "the network's blobs have other shapes than on rank 0: the data are others"
            found.append(problem(f"{ranks.named(members)}: {differs}", "copy the same data to all hosts"))
    return Graphs(graphs, tuple(found))
