"""The average of the weights in the place of the weights, on all ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bpt.engine.optim.rules import UpdateRule
from bpt.parallel.exchange import Exchange


@contextmanager
def averaged(rule: UpdateRule, exchange: Exchange) -> Iterator[None]:
    """Replace the weights by their average in the block; a collective call.

    Where ranks divide the update, each has the average of its slices, and the others get it.
    """
    with rule.averaged():
        _spread(exchange)
        yield
    _spread(exchange)


def _spread(exchange: Exchange) -> None:
    exchange.updated()
    exchange.complete_weights()
