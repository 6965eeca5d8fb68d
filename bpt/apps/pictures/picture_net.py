"""A trained net that runs on pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from bpt.apps.pictures.fed_net import NetWithInputs
from bpt.apps.pictures.image_input import ImageInput, Prepared, image_input
from bpt.apps.pictures.named_pictures import NamedPicture
from bpt.base.errors import DataError, FileError, RunError
from bpt.graph.layer_graph import Edge
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.trained_weights import load_trained
from bpt.train.state import MissingWeights

BATCH = 16  # largest number of pictures that a net runs on at once


class DamagedPictures:
    """Pictures that cannot be used, and the reasons; each is reported when it is found.

    Args:
        report: takes a line about each picture.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._errors: list[FileError | DataError] = []

    def add(self, picture: NamedPicture, error: FileError | DataError) -> None:
        """Report that ``picture`` cannot be used because of ``error``."""
        text = str(error)
        self._report(text if picture.path in text else f"{picture.path}: {text}")
        self._errors.append(error)

    def __len__(self) -> int:
        return len(self._errors)

    def raise_if_any(self, asked: int) -> None:
        """Raise a RunError if some of the ``asked`` pictures could not be used; it says how many."""
        if self._errors:
            raise RunError(f"{len(self)} of {asked} pictures could not be used; each is named above with its reason")


@dataclass(frozen=True)
class PictureNet:
    """A net with trained weights on a device, and the preparation of its input; ``of`` makes it.

    Attributes:
        net: the net's graph and input.
        running: the net with its weights.
        input: prepares pictures.
        device: where the net runs.
    """

    net: NetWithInputs
    running: Net
    input: ImageInput
    device: torch.device

    @classmethod
    def of(
        cls,
        net: NetWithInputs,
        weights: Sequence[str],
        device: torch.device,
        preprocessing: str,
        asked: Edge,
        *,
        missing: MissingWeights = MissingWeights.REFUSE_RANDOM,
        shared: Mapping[tuple[str, int], nn.Parameter] | None = None,
        context: PassContext | None = None,
    ) -> PictureNet:
        """Return ``net`` with the trained ``weights``.

        Args:
            net: the net's graph and input.
            weights: the files of weights; a record of the preparation may be beside them.
            device: where the net runs.
            preprocessing: the record's file; see image_input.
            asked: the edge that the caller reads.
            missing: how to treat layers that ``asked`` depends on and that no file has.
            shared: parameters that another net has loaded from ``weights``; ``None``: load them.
            context: the net's context.

        Raises:
            UserError: a file is wrong, or nothing says how pictures are prepared.
        """
        prepare = image_input(net, weights, preprocessing)
        running = make_net(net.graph, device, context, shared, filled=shared is None)
        if shared is None:
            load_trained(running, weights, net.model, missing=missing, asked=[asked])
        return cls(net, running, prepare, device)

    @torch.no_grad()
    def run(self, prepared: Prepared, edge: Edge) -> Tensor:
        """Return the values of ``edge`` for at most as many pictures as the batch has; the other samples are zeros."""
        images = torch.zeros(self.net.input.shape, dtype=self.running.context.precision.compute)
        images[: len(prepared.input)] = torch.from_numpy(prepared.input)
        values: dict[int, Tensor] = {self.net.input.index: images.to(self.device)}
        with self.running.fixed_parameters():
            self.running.run(
                1, len(self.net.graph), values, frozenset({edge.index}), lambda tensor: tensor.to(self.device)
            )
        return values[edge.index].cpu()

    def batches(
        self, asked: Sequence[NamedPicture], damaged: DamagedPictures | None = None
    ) -> Iterator[tuple[Sequence[NamedPicture], Prepared]]:
        """Yield pictures, at most as many as a batch has, with the input that they become.

        Args:
            asked: the pictures.
            damaged: takes the pictures that cannot be used; the batches leave them out.

        Raises:
            FileError: a picture cannot be read, and ``damaged`` is ``None``.
            DataError: a picture is too small for the crop, and ``damaged`` is ``None``.
        """
        size = self.net.input.shape[0]
        ready: list[tuple[NamedPicture, Prepared]] = []
        for picture in asked:
            try:
                ready.append((picture, self.input([picture.path])))
            except (FileError, DataError) as error:
                if damaged is None:
                    raise
                damaged.add(picture, error)
            if len(ready) == size:
                yield _as_batch(ready)
                ready = []
        if ready:
            yield _as_batch(ready)


def _as_batch(ready: Sequence[tuple[NamedPicture, Prepared]]) -> tuple[Sequence[NamedPicture], Prepared]:
    read = [each for _, each in ready]
    sizes, parts = [each.sizes[0] for each in read], [each.parts[0] for each in read]
    return [picture for picture, _ in ready], Prepared(np.concatenate([each.input for each in read]), sizes, parts)
