"""The average of the weights in the place of the weights, to be tested and saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from bpt.optim.rules import UpdateRule


@contextmanager
def averaged_weights(rule: UpdateRule) -> Iterator[None]:
    """Let the net that ``rule`` updates have the average of its weights inside; its own come back unchanged."""
    values = [parameter.value for parameter in rule.parameters]
    with torch.no_grad():
        own = [value.detach().clone() for value in values]
        for value, average in zip(values, rule.averages, strict=True):
            value.copy_(average)
    try:
        yield
    finally:
        with torch.no_grad():
            for value, before in zip(values, own, strict=True):
                value.copy_(before)
