"""Check that all ranks read the same solver and networks, and build the same graphs from them."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from bpt.apps.doctor.findings import Attempt, Finding, Ranks, Section, attempt, grouped, note, ok, problem, reads_all
from bpt.base.violation import refuse
from bpt.config.plan.nets import NetPlan
from bpt.config.plan.run_plan import RunPlan
from bpt.config.proto.text import to_text
from bpt.graph.layer_graph import LayerGraph
from bpt.nn.net_graph import build_graph_of
from bpt.train.rules.violations import violations, violations_here
from bpt.train.runtime.run_facts import facts_of

_SHOWN = 3  # largest number of differing lines that a finding shows
_REMEDY = "copy the same file to all hosts, or put it in a folder that they share, and give all ranks the same flags"


@dataclass(frozen=True)
class Texts:
    """The texts that this rank has read.

    Attributes:
        solver: the plan of the solver.
        checked: the error of its fields, if there is one.
        plans: the plans of the nets by purpose, the training net first.
    """

    solver: Attempt[RunPlan]
    checked: Attempt[None]
    plans: Attempt[dict[str, NetPlan]]

    @classmethod
    def read(cls, read: Callable[[], RunPlan], rank: int = 0) -> Texts:
        """Read the solver by ``read``, and its nets that ``rank`` needs. This is not collective and raises nothing."""
        solver = attempt(read)
        plan = solver.value
        if plan is None:
            return cls(solver, Attempt(None, None), Attempt(None, None))
        checked = attempt(lambda: refuse(plan, (*violations(plan), *violations_here(plan))))
        return cls(solver, checked, attempt(lambda: _plans(plan, rank)))

    @property
    def error(self) -> Exception | None:
        """The first error; ``None``: there is none."""
        return self.solver.error or self.checked.error or self.plans.error

    def by_name(self) -> dict[str, str]:
        """Return the readable texts with all defaults and flags."""
        solver, plans = self.solver.value, self.plans.value or {}
        nets = {name: to_text(plan.source.param) for name, plan in plans.items()}
        return nets if solver is None else {"solver": solver.text, **nets}


def _plans(plan: RunPlan, rank: int) -> dict[str, NetPlan]:
    tests = plan.tests if reads_all(plan, rank) else ()
    return {"training net": plan.train, **{f"test net #{index}": test for index, test in enumerate(tests)}}


def check_texts(ranks: Ranks, texts: Texts) -> tuple[Section, Exception | None]:
    """Compare the texts of all ranks; a collective call.

    Returns:
        The section, and the error if no rank can use the texts, because then the texts are wrong and not the cluster.
    """
    world = ranks.world
    errors = world.allgather([attempt.message for attempt in (texts.solver, texts.checked, texts.plans)])
    found = [
        finding
        for messages in zip(*errors, strict=True)
        for finding in errors_of(ranks, list(messages), "" if all(messages) else _REMEDY)
    ]
    found += _different(ranks, texts)
    everywhere = all(any(messages) for messages in errors)
    wrong = world.bcast(texts.error if everywhere else None)
    if not found:
        names = ", ".join(world.bcast(tuple(texts.by_name())))
        found.append(ok(f"{names}: read{', the same on all ranks' * (world.size > 1)}"))
    return Section("Solver and networks", tuple(found)), wrong


def errors_of(ranks: Ranks, messages: list[str], remedy: str = "") -> Iterator[Finding]:
    """Yield a problem for each message that is not empty, with the ranks that have it."""
    for message, members in grouped(messages).items():
        if message:
            everywhere = len(members) == ranks.world.size
            yield problem(message if everywhere else f"{ranks.named(members)}: {message}", remedy)


def _different(ranks: Ranks, texts: Texts) -> Iterator[Finding]:
    """Yield problems for texts that differ from those of rank 0; a collective call."""
    world, mine = ranks.world, texts.by_name()
    digests = world.allgather({name: hashlib.blake2b(text.encode()).digest() for name, text in mine.items()})
    differs = any(theirs.get(name, digest) != digest for theirs in digests for name, digest in digests[0].items())
    if not differs:
        return
    first: dict[str, str] = world.bcast(mine)
    changes = world.allgather({name: _changes(first[name], mine.get(name, first[name])) for name in first})
    for name in first:
        for change, members in grouped([theirs[name] for theirs in changes]).items():
            if change:
                yield problem(f"{ranks.named(members)}: {name} differs from rank 0's: {change}", _REMEDY)


def _changes(first: str, own: str) -> str:
    """Return the first lines of ``own`` that differ from ``first``, and the lines of ``first`` instead."""
    lines = difflib.unified_diff(first.splitlines(), own.splitlines(), n=0, lineterm="")
    changed = [line for line in islice(lines, 2, None) if not line.startswith("@@")]
    here, there = ([line[1:].strip() for line in changed if line[0] == sign] for sign in "+-")
    if not changed:
        return ""
    return f'"{_some(here)}", not "{_some(there)}"'


def _some(lines: list[str]) -> str:
    return " ".join(lines[:_SHOWN]) + (" …" if len(lines) > _SHOWN else "")


_TEXT = "network text"


@dataclass(frozen=True)
class Graphs:
    """The graphs of the nets, or findings. Except for ``by_name``, it is the same on all ranks.

    Attributes:
        by_name: this rank's graphs, the training net first.
        findings: the problems; if there are any, there is no plan.
        wrong: the error that keeps all ranks from making the nets; ``None`` if there is none, or files are missing.
    """

    by_name: Mapping[str, LayerGraph] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    wrong: Exception | None = None


def build_graphs(ranks: Ranks, plan: RunPlan, plans: Mapping[str, NetPlan], known: Sequence[str]) -> Graphs:
    """Build the graphs of the nets and compare them; a collective call.

    Args:
        ranks: all ranks.
        plan: the plan of the run.
        plans: the plans of the nets that this rank builds, the training net first. Rank 0 builds all nets.
        known: errors of this rank that are reported already; a net that fails because of one is not reported again.
    """
    world = ranks.world
    built = attempt(lambda: {name: build_graph_of(net) for name, net in plans.items()})
    is_known = any(message and message in built.message for message in known)
    answers = world.allgather((built.message, is_known, tuple(plans)))
    found = list(errors_of(ranks, ["" if reported else message for message, reported, _ in answers]))
    if any(message for message, _, _ in answers):
        as_first = [(message, reported) for message, reported, nets in answers if nets == answers[0][2]]
        everywhere = all(message and not reported for message, reported in as_first)
        found.append(note("not checked: it needs networks that can be built on all ranks"))
        return Graphs(findings=tuple(found), wrong=world.bcast(built.error if everywhere else None))
    graphs = built.value
    assert graphs is not None
    text = facts_of(plan, next(iter(graphs.values())))[_TEXT] if graphs else ""
    shapes = world.allgather(text)
    for shape, members in grouped(shapes).items():
        if shape not in ("", shapes[0]):
            differs = "the network's blobs have other shapes than on rank 0: the data differ"
            found.append(problem(f"{ranks.named(members)}: {differs}", "copy the same data to all hosts"))
    return Graphs(graphs, tuple(found))
