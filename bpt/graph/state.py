"""Select the layers of a network text by Caffe's NetState rules (``Net::FilterNet``)."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerSpec


def show_state(state: pb.NetState) -> str:
    """Return ``state`` in words, for messages: ``phase TRAIN and level 1 and stage a, b``."""
    parts = [f"phase {pb.Phase.Name(state.phase)}"]
    parts += [f"level {state.level}"] if state.level else []
    parts += [f"stage {', '.join(state.stage)}"] if state.stage else []
    return " and ".join(parts)


def filter_layers(layers: Sequence[LayerSpec], state: pb.NetState) -> tuple[LayerSpec, ...]:
    """Return the layers whose include/exclude rules admit ``state``, in order.

    A layer without rules is always admitted. Several ``include`` rules are alternatives. One matching ``exclude`` rule
    excludes a layer.

    Raises:
        LayerError: a layer has both kinds of rules.
    """
    return tuple(layer for layer in layers if is_in(layer, state))


def is_in(layer: LayerSpec, state: pb.NetState) -> bool:
    """Return whether the layer's rules admit ``state``; raise a LayerError if it has both kinds of rules."""
    include, exclude = layer.param.include, layer.param.exclude
    if include and exclude:
        raise layer.error('use "include" or "exclude" rules, not both', "exclude")
    if include:
        return any(_matches(rule, state) for rule in include)
    return not any(_matches(rule, state) for rule in exclude)


def _matches(rule: pb.NetStateRule, state: pb.NetState) -> bool:
    """Return whether ``state`` fulfils every condition of ``rule`` (``Net::StateMeetsRule``)."""
    stages = set(state.stage)
    return not (
        (rule.HasField("phase") and rule.phase != state.phase)
        or (rule.HasField("min_level") and state.level < rule.min_level)
        or (rule.HasField("max_level") and state.level > rule.max_level)
        or not stages.issuperset(rule.stage)
        or stages.intersection(rule.not_stage)
    )
