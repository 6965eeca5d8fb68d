"""Codec: what sums gradients over ranks with fewer bytes than they have, and the registry of codecs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from bpt.comm.base import Communicator
from bpt.exchange.transport.transport import Transport
from bpt.registry import Registry

if TYPE_CHECKING:
    from bpt.plan.spec import CompressionSpec


class Codec(ABC):
    """Sums gradients over ranks, up to what it leaves out; that is kept on the rank, and added to its next gradient.

    This is error feedback (Stich et al. 2018; Karimireddy et al. 2019): over all iterations the sums that came out, and
    what ranks still keep, add up to what went in. What is kept goes by parameter, so messages may be cut anew.

    Made of the settings in ``compression_param``.
    """

    @abstractmethod
    def sum(self, gradients: Mapping[str, Tensor], comm: Communicator, transport: Transport) -> None:
        """Leave in ``gradients`` their sums over ``comm``, on the ranks where ``transport`` leaves them; a collective.

        Args:
            gradients: by parameter, in one order on all ranks; contiguous, on the host, written in place.
        """

    @abstractmethod
    def state(self) -> Mapping[str, Tensor]:
        """What this rank keeps, by names that begin with the parameter's. Never written to afterwards."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Go on from a ``state()``; what it does not name begins anew."""


def joined(tensors: Iterable[Tensor]) -> Tensor:
    """All elements in one row, in memory of their own."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def parted(row: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Tensors in the shapes of ``like``, of which ``row`` is made; they share its memory."""
    parts = torch.split(row, [tensor.numel() for tensor in like])
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]


CODECS: Registry[Callable[[CompressionSpec], Codec]] = Registry(
    "codec",
    {
        "bpt.exchange.codec.half": ("BF16", "FP16"),
        "bpt.exchange.codec.top_k": ("TOPK",),
        "bpt.exchange.codec.power_sgd": ("POWERSGD",),
    },
)
