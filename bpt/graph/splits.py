"""Insert a Split layer after each blob with several readers, so that each reader has its own diff (InsertSplits)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from bpt.base.errors import did_you_mean
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_spec import LayerSpec

Writer = tuple[int, int]  # layer index, top index: one version of a blob


Explain = Callable[[LayerSpec, str], str]
"""Returns why no layer makes a bottom of a layer, as the end of a message; "" if it knows no reason."""


def insert_splits(layers: Sequence[LayerSpec], explain: Explain = lambda spec, blob: "") -> tuple[LayerSpec, ...]:
    """Return ``layers`` with Splits, so that every version of a blob is read once; idempotent, without side effects.

    The copies are called ``<blob>_<layer>_<top>_split_<k>`` after the layer that wrote the blob last. A top's
    ``loss_weight`` moves to the first copy.

    Raises:
        LayerError: no earlier layer makes a bottom; ``explain`` may complete the message.
    """
    bottoms, readers = _resolve(layers, explain)
    out: list[LayerSpec] = []
    copies_used: dict[Writer, int] = defaultdict(int)
    for index, spec in enumerate(layers):
        param = pb.LayerParameter()
        param.CopyFrom(spec.param)
        for position, writer in enumerate(bottoms[index]):
            if _needs_split(layers, writer, readers[writer]):
                param.bottom[position] = _copy_name(layers, writer, copies_used[writer])
                copies_used[writer] += 1
        splits = []
        for top in range(len(spec.tops)):
            writer = (index, top)
            if _needs_split(layers, writer, readers[writer]):
                splits.append(_split_layer(layers, writer, readers[writer]))
                if len(param.loss_weight) > top and param.loss_weight[top]:
                    param.loss_weight[top] = 0
        out.append(LayerSpec(param, spec.origins, spec.bottom_names))
        out.extend(splits)
    return tuple(out)


def _resolve(layers: Sequence[LayerSpec], explain: Explain) -> tuple[list[list[Writer]], dict[Writer, int]]:
    """Return the writers of each layer's bottoms, and the number of bottoms that read each writer."""
    latest: dict[str, Writer] = {}
    bottoms: list[list[Writer]] = []
    readers: dict[Writer, int] = defaultdict(int)
    for index, spec in enumerate(layers):
        sources = []
        for position, blob in enumerate(spec.bottoms):
            if blob not in latest:
                made = f" (made so far: {', '.join(latest)})" if latest else " (this is the first layer)"
                hint = explain(spec, blob) or did_you_mean(blob, latest) or made
                raise spec.error(f'no earlier layer makes bottom "{blob}"{hint}', "bottom", position)
            sources.append(latest[blob])
            readers[latest[blob]] += 1
        bottoms.append(sources)
        for top, blob in enumerate(spec.tops):
            latest[blob] = (index, top)
    return bottoms, readers


def _loss_weight(spec: LayerSpec, top: int) -> float:
    return spec.param.loss_weight[top] if top < len(spec.param.loss_weight) else 0.0


def _needs_split(layers: Sequence[LayerSpec], writer: Writer, readers: int) -> bool:
    """Return whether a blob needs copies: it has two readers, or it is a loss and has one."""
    index, top = writer
    return readers + (readers > 0 and _loss_weight(layers[index], top) != 0) > 1


def _split_name(layers: Sequence[LayerSpec], writer: Writer) -> str:
    index, top = writer
    return f"{layers[index].tops[top]}_{layers[index].name}_{top}_split"


def _copy_name(layers: Sequence[LayerSpec], writer: Writer, copy: int) -> str:
    # The first copy of a loss carries the loss weight and has no reader.
    index, top = writer
    return f"{_split_name(layers, writer)}_{copy + (_loss_weight(layers[index], top) != 0)}"


def _split_layer(layers: Sequence[LayerSpec], writer: Writer, readers: int) -> LayerSpec:
    index, top = writer
    loss_weight = _loss_weight(layers[index], top)
    name = _split_name(layers, writer)
    split = pb.LayerParameter(name=name, type="Split", bottom=[layers[index].tops[top]])
    copies = readers + (loss_weight != 0)
    split.top.extend(f"{name}_{copy}" for copy in range(copies))
    if loss_weight:
        split.loss_weight.extend([loss_weight] + [0.0] * (copies - 1))
    return LayerSpec(split, layers[index].origins)
