"""``scripts/bench loop`` compares like with like: its plain PyTorch net computes what bpt's computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bpt.config.plan.resolve import resolve
from bpt.engine.operator import Operator
from bpt.nn.net import Net
from bpt.nn.net_graph import build_graph_of
from scripts.benches.harness.plain_net import PlainNet
from scripts.benches.harness.sides import batch_of, fed, solver_source


def pairs(net: Net, plain: PlainNet) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Each trained parameter of ``net`` with the one of ``plain`` that plays its part."""
    found = []
    for node in net.graph.nodes:
        if not node.params or node.type == "BatchNorm":
            continue
        # BatchNorm2d stands for the Scale behind it, too.
        module = plain.get_submodule(f"layer{node.index - 1 if node.type == 'Scale' else node.index}")
        theirs: Any = module[1] if isinstance(module, nn.Sequential) else module
        ours = [net.value(net.graph.params[index]) for index in node.params]
        found += list(zip(ours, [p for p in (theirs.weight, theirs.bias) if p is not None], strict=True))
    return found


def gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    assert all(parameter.grad is not None for parameter in parameters)
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


@pytest.mark.parametrize("name", ["lenet", "cifar10_quick", "resnet20"])
def test_plain_is_the_same_net(name: str) -> None:
    graph = build_graph_of(resolve(solver_source(name, 4, "CONTIGUOUS")).train)
    net, plain = Net(graph), PlainNet(graph)
    ours, theirs = map(list, zip(*pairs(net, plain), strict=True))
    assert len(ours) == len(list(plain.parameters()))
    with torch.no_grad():
        for mine, other in zip(ours, theirs, strict=True):
            other.copy_(mine)
    data, label = batch_of(name, 4)

    loss = plain(data, label)
    loss.backward()
    operator = Operator(net)
    operator.feed(fed(graph, data, label))
    operator.forward(0)
    operator.backward(0)

    torch.testing.assert_close(operator.loss(), loss.detach().double(), rtol=1e-5, atol=1e-6)
    for mine, other in zip(gradients(ours), gradients(theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)
