"""A trained net that pictures are put into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bpt.apps.pictures.fed_net import NetWithInputs
from bpt.apps.pictures.image_input import ImageInput, Prepared, image_input
from bpt.apps.pictures.named_pictures import NamedPicture
from bpt.base.errors import UserError
from bpt.graph.layer_graph import Edge
from bpt.nn.net import Net
from bpt.nn.pass_context import PassContext
from bpt.train.runtime.net_on_device import make_net
from bpt.train.runtime.trained_weights import load_trained
from bpt.train.state import MissingWeights

BATCH = 16  # pictures that go through a net at once


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
        if net.axes != 2:
            raise UserError(
                f'{net.model}: its input "{net.input.blob}" {net.input.shape} has {net.axes} spatial axes; images '
                "have 2"
            )
        prepare = image_input(net, weights, preprocessing)
        running = make_net(net.graph, device, context, shared, filled=shared is None)
        if shared is None:
            load_trained(running, weights, net.model, missing=missing, asked=[asked])
        return cls(net, running, prepare, device)

    @torch.no_grad()
    def run(self, files: Sequence[str], edge: Edge) -> tuple[Prepared, Tensor]:
        """Return what the net makes at ``edge`` of at most as many image files as the batch has.

        The rest of that is 0.
        """
        prepared = self.input(files)
        images = torch.zeros(self.net.input.shape, dtype=self.running.context.precision.compute)
        images[: len(files)] = torch.from_numpy(prepared.input)
        values: dict[int, Tensor] = {self.net.input.index: images.to(self.device)}
        with self.running.fixed_parameters():
            self.running.run(
                1, len(self.net.graph), values, frozenset({edge.index}), lambda tensor: tensor.to(self.device)
            )
        return prepared, values[edge.index].cpu()

    def batches(self, asked: Sequence[NamedPicture]) -> Iterator[Sequence[NamedPicture]]:
        """``asked``, as many at once as go through the net."""
        size = self.net.input.shape[0]
        return (asked[begin : begin + size] for begin in range(0, len(asked), size))
