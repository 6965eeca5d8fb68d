"""A trained net that pictures are put into."""

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

BATCH = 16  # pictures that go through a net at once


class DamagedPictures:
    """Pictures that cannot be used, and why; each is reported when it is found.

    Args:
        report: takes a line about each.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._errors: list[FileError | DataError] = []

    def add(self, picture: NamedPicture, error: FileError | DataError) -> None:
        """Report that ``error`` keeps ``picture`` from being used."""
        text = str(error)
        self._report(text if picture.path in text else f"{picture.path}: {text}")
        self._errors.append(error)

    def __len__(self) -> int:
        return len(self._errors)

    def raise_if_any(self, asked: int) -> None:
        """End the command if some of the ``asked`` pictures could not be used.

        Raises:
            RunError: says how many.
        """
        if self._errors:
            raise RunError(f"{len(self)} of {asked} pictures could not be used; each is named above with its reason")


@dataclass(frozen=True)
class PictureNet:
    """A net with trained weights on a device, and how pictures become its input; ``of`` makes it."""

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
        """``net`` with the trained ``weights``.

        Args:
            weights: files; how pictures are prepared may stand beside them.
            preprocessing: see image_input.
            asked: what the net is run for.
            missing: what is done about layers that ``asked`` depends on and that are in none of the weights.
            shared: the parameters, which have come from ``weights`` already; ``None``: they are loaded.
            context: of the net.

        Raises:
            UserError: a file is wrong, or nothing says how pictures are to be prepared.
        """
        prepare = image_input(net, weights, preprocessing)
        running = make_net(net.graph, device, context, shared, filled=shared is None)
        if shared is None:
            load_trained(running, weights, net.model, missing=missing, asked=[asked])
        return cls(net, running, prepare, device)

    @torch.no_grad()
    def run(self, prepared: Prepared, edge: Edge) -> Tensor:
        """Return what the net makes at ``edge`` of at most as many pictures as the batch has; the rest is 0."""
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
        """Yield the pictures, as many at once as go through the net, and what they are as its input.

        Args:
            damaged: takes the pictures that cannot be used, which are left out.

        Raises:
            FileError: a picture cannot be read, and nobody takes ``damaged`` ones.
            DataError: as FileError, for a picture that is too small for the crop.
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
