"""Explain a missing blob, if a rule of the net left out the layer that would make it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from bpt.base.caller import for_caller
from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerSpec
from bpt.graph.state import is_in, show_state

_MOST_CHANGES = 3  # changes that are tried together to escape a layer's exclude rules
_MOST_TRIED = 16  # changes from which these combinations are made

Change = tuple[str, int | str]
"""A field of a NetState (``phase``, ``level``, ``stage``) and its new value; a stage is added or taken away."""


def explain_left_out(blob: str, earlier: Sequence[LayerSpec], state: pb.NetState, *, same_phase: bool = False) -> str:
    """Return the layer of ``earlier`` that would make ``blob``, the rule that excludes it, and a state that admits it.

    The text completes 'no earlier layer makes bottom "x"'. It is empty if no rule excludes a layer that makes ``blob``.
    If there are several such layers, it names the one that needs the fewest changes of the state.

    Args:
        blob: the missing blob.
        earlier: the layers before its reader.
        state: the state of the net.
        same_phase: considers only layers that another level or other stages admit.
    """
    makers = [spec for spec in earlier if blob in spec.tops and not is_in(spec, state)]
    makers = [spec for spec in makers if blob not in spec.bottoms] or makers  # a layer in place only changes the blob
    found = [(spec, admitting_state(spec, state)) for spec in makers]
    if same_phase:
        found = [(spec, admits) for spec, admits in found if admits and admits.phase == state.phase]
    if not found:
        return ""
    spec, admits = min(found, key=lambda pair: _distance(pair[1], state))
    place = spec.origin()
    line = f" (line {place.line})" if place else ""
    reason = f': layer "{spec.name}"{line} makes it, and is left out in {show_state(state)} by its {_show_rules(spec)}'
    return f"{reason}: {_show_flags(admits, state)}, or change its rule" if admits else f"{reason}: change its rule"


def explain_none_in(layers: Sequence[LayerSpec], state: pb.NetState) -> str:
    """Return the end of a message: flags that admit the first excluded one of ``layers``; "" if there is none."""
    for spec in layers:
        if not is_in(spec, state) and (admits := admitting_state(spec, state)):
            return f'; layer "{spec.name}" has {_show_rules(spec)}: {_show_flags(admits, state)}'
    return ""


def admitting_state(spec: LayerSpec, state: pb.NetState) -> pb.NetState | None:
    """Return the state nearest to ``state`` that the layer's rules admit; None if no near one is found."""
    include = spec.param.include
    near = [_meet(rule, state) for rule in include] if include else _escape(spec.param.exclude, state)
    return min((found for found in near if is_in(spec, found)), key=lambda found: _distance(found, state), default=None)


def _meet(rule: pb.NetStateRule, state: pb.NetState) -> pb.NetState:
    """Return ``state`` with the changes that ``rule`` asks for."""
    level = max(state.level, rule.min_level) if rule.HasField("min_level") else state.level
    level = min(level, rule.max_level) if rule.HasField("max_level") else level
    stages = [stage for stage in dict.fromkeys((*state.stage, *rule.stage)) if stage not in rule.not_stage]
    return make_state(rule.phase if rule.HasField("phase") else state.phase, level, stages)


def _escape(rules: Iterable[pb.NetStateRule], state: pb.NetState) -> Iterator[pb.NetState]:
    """Yield states in which one or several conditions of ``rules`` no longer hold, the nearest ones first."""
    changes: dict[Change, None] = {}
    for rule in rules:
        if rule.HasField("phase"):
            changes["phase", pb.TEST if rule.phase == pb.TRAIN else pb.TRAIN] = None
        changes.update({("stage", stage): None for stage in (*rule.stage, *rule.not_stage)})
        if rule.HasField("min_level"):
            changes["level", rule.min_level - 1] = None
        if rule.HasField("max_level"):
            changes["level", rule.max_level + 1] = None
    for number in range(1, _MOST_CHANGES + 1):
        for together in combinations(list(changes)[:_MOST_TRIED], number):
            yield _changed(state, together)


def _changed(state: pb.NetState, changes: Iterable[Change]) -> pb.NetState:
    phase, level, stages = int(state.phase), state.level, list(state.stage)
    for field, value in changes:
        if field == "phase":
            phase = int(value)
        elif field == "level":
            level = int(value)
        elif value in stages:
            stages.remove(str(value))
        else:
            stages.append(str(value))
    return make_state(phase, level, stages)


def _distance(found: pb.NetState | None, state: pb.NetState) -> int:
    """Return the number of differences between two states."""
    if found is None:
        return 1_000
    stages = set(found.stage) ^ set(state.stage)
    return (found.phase != state.phase) + (found.level != state.level) + len(stages)


def _show_rules(spec: LayerSpec) -> str:
    kind, rules = ("include", spec.param.include) if spec.param.include else ("exclude", spec.param.exclude)
    return " ".join(f"{kind} {{ {_show_rule(rule)} }}" for rule in rules)


def _show_rule(rule: pb.NetStateRule) -> str:
    words = [f"phase: {pb.Phase.Name(rule.phase)}"] if rule.HasField("phase") else []
    words += [f"{name}: {getattr(rule, name)}" for name in ("min_level", "max_level") if rule.HasField(name)]
    words += [f'stage: "{stage}"' for stage in rule.stage]
    words += [f'not_stage: "{stage}"' for stage in rule.not_stage]
    return " ".join(words)


def _show_flags(found: pb.NetState, state: pb.NetState) -> str:
    """Return the flags of the command line, or the arguments of Python, that turn ``state`` into ``found``."""
    flags = []
    if found.phase != state.phase:
        # Some commands always build nets of phase TEST, and have no such flag.
        where = " (where a command has it)" if found.phase == pb.TRAIN else ""
        phase = pb.Phase.Name(found.phase)
        flags.append(for_caller(f"--phase {phase}{where}", f"phase=bpt.{phase}"))
    if found.level != state.level:
        flags.append(for_caller(f"--level {found.level}", f"level={found.level}"))
    if set(found.stage) - set(state.stage):
        flags.append(for_caller(f"--stage {','.join(found.stage)}", f"stages={list(found.stage)}"))
    elif gone := [stage for stage in state.stage if stage not in found.stage]:
        flags.append(f"no stage {' or '.join(gone)}")
    return " and ".join(flags)
