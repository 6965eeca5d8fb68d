"""No setting of a layer is ignored: without it, a layer that Caffe was recorded with makes other numbers, or none."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from google.protobuf import text_format
from torch import Tensor

from bpt.base.errors import BptError
from bpt.config.plan.nets import make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.build import build_graph
from bpt.graph.layer_specs import layer_specs
from bpt.nn.layers import LAYERS
from bpt.nn.net import Net
from tests.support.golden_cases import recorded
from tests.support.paths import GOLDEN

FOLDER = GOLDEN / "layers"
KINDS = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "Input")

# Settings that show in other tests than this: the recorded values are the defaults, or what they change is drawn at
# random, written over, or different only where a bottom is 0.
ELSEWHERE = {
    ("BatchNormParameter", "moving_average_fraction"),  # changes the blobs, after the pass
    ("ConvolutionParameter", "pad_w"),  # 0, beside a pad_h
    ("ConvolutionParameter", "weight_filler"),
    ("EltwiseParameter", "stable_prod_grad"),
    ("FlattenParameter", "axis"),  # 1, beside an end_axis
    ("RecurrentParameter", "weight_filler"),
}


def results(net: pb.NetParameter, phase: int, bottoms: dict[str, np.ndarray]) -> list[Tensor]:
    """The tops of ``net`` and, for a sum of them with unlike weights, the gradients; parameters are in [0.5, 1.5)."""
    state = make_state(phase)
    module = Net(build_graph("net", layer_specs(net), LAYERS, state, force_backward=net.force_backward))
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        parameter.data = torch.rand(parameter.shape, generator=generator) + 0.5
    inputs = [torch.from_numpy(bottoms[name].copy()).requires_grad_() for name in module.graph.inputs]
    tops = module(*inputs)
    tops = (tops,) if isinstance(tops, Tensor) else tuple(tops)
    terms = [(top * torch.arange(top.numel()).reshape(top.shape)).sum() for top in tops if top.requires_grad]
    if not terms:
        return [top.detach() for top in tops]
    wanted = [*inputs, *(parameter for parameter in module.parameters() if parameter.requires_grad)]
    slopes = torch.autograd.grad(torch.stack(terms).sum(), wanted, allow_unused=True)
    return [*(top.detach() for top in tops), *(slope for slope in slopes if slope is not None)]


def differ(ours: list[Tensor], others: list[Tensor]) -> bool:
    return [tensor.shape for tensor in ours] != [tensor.shape for tensor in others] or not all(
        torch.allclose(one, other, rtol=1e-6, atol=1e-8, equal_nan=True)
        for one, other in zip(ours, others, strict=True)
    )


def settings_of(net: pb.NetParameter) -> Iterator[tuple[str, str, str]]:
    """The fields set in messages of the layer "L": message, field of the layer, field of the message."""
    layer = next(layer for layer in net.layer if layer.name == "L")
    for field, message in layer.ListFields():
        if field.name.endswith("_param"):
            for setting, _ in message.ListFields():
                yield message.DESCRIPTOR.name, field.name, setting.name


def without(net: pb.NetParameter, field: str, setting: str) -> pb.NetParameter:
    changed = copy.deepcopy(net)
    getattr(next(layer for layer in changed.layer if layer.name == "L"), field).ClearField(setting)
    return changed


def matters(case: dict[str, Any], net: pb.NetParameter, arrays: dict[str, np.ndarray], field: str, name: str) -> bool:
    prefix = f"{case['id']}/s0/in/"
    bottoms = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    phase = pb.Phase.Value(case["phase"])
    try:
        others = results(without(net, field, name), phase, bottoms)
    except BptError:
        return True  # it is needed
    return differ(results(net, phase, bottoms), others)


@pytest.mark.parametrize("kind", KINDS)
def test_every_recorded_setting_matters(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)  # some of them name files
    cases, arrays = recorded(kind)
    seen: dict[tuple[str, str], bool] = {}
    for case in cases:
        net = text_format.Parse(case["prototxt"], pb.NetParameter())
        for message, field, name in settings_of(net):
            if not seen.get((message, name)):
                seen[message, name] = matters(case, net, arrays, field, name)
    assert {setting for setting, does in seen.items() if not does} <= ELSEWHERE


def test_there_are_many() -> None:
    texts = [case["prototxt"] for kind in KINDS for case in json.loads(Path(FOLDER / f"{kind}.json").read_text())]
    found = {setting for text in texts for setting in settings_of(text_format.Parse(text, pb.NetParameter()))}
    assert len(found) > 90
    assert {(message, name) for message, _, name in found} >= ELSEWHERE
