"""Parameters shared between layers by name (Caffe: ``Net::AppendParam``)."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import Param
from bpt.graph.layer_spec import LayerSpec, ParamSpec, count


def place_params(specs: Sequence[LayerSpec], owned: Sequence[Sequence[ParamSpec]]) -> tuple[Param, ...]:
    """Assign numbers to the parameter blobs of all layers, and resolve which of them share values.

    Blobs with equal ``param { name }`` share values; the first one owns them. Their shapes must be equal, or only their
    counts with ``share_mode: PERMISSIVE``. An explicit ``lr_mult`` or ``decay_mult`` must not contradict an earlier
    one.

    Raises:
        LayerError: shapes or multipliers do not fit; it names both layers.
    """
    params: list[Param] = []
    owner_of: dict[str, int] = {}
    explicit: dict[tuple[int, str], float] = {}
    for layer, (spec, blobs) in enumerate(zip(specs, owned, strict=True)):
        given = spec.param.param
        if len(given) > len(blobs):
            raise spec.error(
                f"{len(given)} param blocks for {len(blobs)} parameter blob{'s' * (len(blobs) != 1)}", "param"
            )
        for position, blob in enumerate(blobs):
            text = given[position] if position < len(given) else pb.ParamSpec()
            index = len(params)
            owner = owner_of.setdefault(text.name, index) if text.name else index
            if owner != index:
                _check_shapes(specs, params[owner], spec, position, blob, text)
            for field in ("lr_mult", "decay_mult"):
                if text.HasField(field):
                    value = getattr(text, field)
                    if explicit.setdefault((owner, field), value) != value:
                        raise spec.error(
                            f'shared param "{text.name}" has {field} {value:g} here but '
                            f"{explicit[owner, field]:g} before",
                            "param",
                            position,
                        )
            params.append(
                Param(
                    index, layer, position, blob.shape, blob.filler, text.name, owner,
                    text.lr_mult if blob.learnable else 0.0, text.decay_mult, blob.learnable,
                )
            )  # fmt: skip
    return tuple(_with_owners_multipliers(param, params, explicit) for param in params)


def _with_owners_multipliers(param: Param, params: Sequence[Param], explicit: dict[tuple[int, str], float]) -> Param:
    """Return the param with the multipliers that any of its sharers sets."""
    owner = params[param.owner]
    if not param.learnable:
        return param
    lr_mult = explicit.get((param.owner, "lr_mult"), owner.lr_mult)
    decay_mult = explicit.get((param.owner, "decay_mult"), owner.decay_mult)
    if (lr_mult, decay_mult) == (param.lr_mult, param.decay_mult):
        return param
    return Param(
        param.index, param.layer, param.blob, param.shape, param.filler, param.name, param.owner,
        lr_mult, decay_mult, param.learnable,
    )  # fmt: skip


def _check_shapes(
    specs: Sequence[LayerSpec], owner: Param, spec: LayerSpec, position: int, blob: ParamSpec, text: pb.ParamSpec
) -> None:
    permissive = text.share_mode == pb.ParamSpec.PERMISSIVE
    fits = count(owner.shape) == count(blob.shape) if permissive else owner.shape == blob.shape
    if not fits:
        raise spec.error(
            f'shared param "{text.name}" has shape {blob.shape} here but {owner.shape} in layer '
            f'"{specs[owner.layer].name}"',
            "param",
            position,
        )
