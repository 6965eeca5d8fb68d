"""CartesianRanks: a grid of ranks that a library has made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bpt.comm.base import Communicator


class Cart(Protocol):
    """MPI's Cartesian communicator, as far as it is needed."""

    def Get_rank(self) -> int:
        """This rank."""

    def Get_coords(self, rank: int) -> list[int]:
        """The place of ``rank``."""

    def Sub(self, remain_dims: Sequence[bool]) -> Any:
        """See Cartesian."""


class CartesianRanks:
    """See Cartesian.

    Args:
        make: a communicator of what the library's ``Sub`` gives.
    """

    def __init__(self, cart: Cart, make: Callable[[Any], Communicator]) -> None:
        self.coords = tuple(cart.Get_coords(cart.Get_rank()))
        self._cart = cart
        self._make = make

    def Sub(self, remain_dims: Sequence[bool]) -> Communicator:
        """See Cartesian."""
        return self._make(self._cart.Sub(remain_dims))
