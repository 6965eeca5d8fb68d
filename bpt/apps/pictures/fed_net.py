"""A net whose input the caller sets: one input of images or scans, and the layers that need nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bpt.apps.pictures.deploy_net import derive_deploy
from bpt.config.plan.nets import NetPlan, make_state
from bpt.config.proto import bpt_pb2 as pb
from bpt.graph.layer_graph import Edge, LayerGraph
from bpt.graph.layer_spec import LayerSpec
from bpt.nn.net_graph import build_graph_of


@dataclass(frozen=True)
class NetWithInputs:
    """A net without its data layers; the caller sets its input.

    Attributes:
        model: the file of its text.
        graph: the layers, from the input on.
        input: the edge that the caller sets, of shape (N, channels, spatial axes …).
        data: the layer of the text that made the input: an Input layer, or the data layer that was replaced by one.
        left_out: the layers that need more than the input, such as labels, and the layers that need those.
    """

    model: str
    graph: LayerGraph
    input: Edge
    data: LayerSpec
    left_out: tuple[str, ...]

    @property
    def axes(self) -> int:
        """The number of spatial axes of the input."""
        return len(self.input.shape) - 2

    @property
    def left_out_words(self) -> str:
        """The layers that are left out, as the end of a message; "" if there are none."""
        return f"; left out, because they need more than the input: {', '.join(self.left_out)}" if self.left_out else ""


def fed_net(plan: NetPlan, batch: int = 1, *, force_backward: bool = False) -> NetWithInputs:
    """Return the net of ``plan``, in the phase TEST, as ``derive_deploy`` makes it.

    Args:
        plan: the net's text.
        batch: samples of a batch.
        force_backward: let every layer compute the gradient of its bottoms, if it can.

    Raises:
        PrototxtError: the text is wrong; the error says where.
        UserError: the input or its shape cannot be determined.
    """
    plan = replace(plan, state=make_state(pb.TEST, plan.state.level, plan.state.stage))
    deploy = derive_deploy(plan, batch, force_backward=force_backward)
    graph = build_graph_of(deploy.plan)
    return NetWithInputs(plan.source.path, graph, graph.edges[0], deploy.data, deploy.left_out)
