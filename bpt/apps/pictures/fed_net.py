"""A net of images or scans that its caller feeds: one input, and what can be computed from it alone."""

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
    """A net from its input on; of one sample, unless more are asked for.

    Attributes:
        model: the file of its text.
        graph: from the input on.
        input: edge that the caller sets, of shape (N, channels, spatial axes …).
        data: the layer of the text that made the input: an Input layer, or the data layer that one replaces.
        left_out: layers that need more than the input (labels, say), and what stands behind them.
    """

    model: str
    graph: LayerGraph
    input: Edge
    data: LayerSpec
    left_out: tuple[str, ...]

    @property
    def axes(self) -> int:
        """Spatial axes of the input."""
        return len(self.input.shape) - 2

    @property
    def left_out_words(self) -> str:
        """The layers that are left out, as the end of a message; empty if there are none."""
        return f"; left out, as they need more than the input: {', '.join(self.left_out)}" if self.left_out else ""


def fed_net(plan: NetPlan, batch: int = 1, *, force_backward: bool = False) -> NetWithInputs:
    """Return the net of ``plan``, in the phase TEST, as ``derive_deploy`` makes it.

    Args:
        force_backward: every layer hands a gradient back, if it can.

    Raises:
        PrototxtError: the text is wrong; says where.
        UserError: the input or its shape cannot be told.
    """
    plan = replace(plan, state=make_state(pb.TEST, plan.state.level, plan.state.stage))
    deploy = derive_deploy(plan, batch, force_backward=force_backward)
    graph = build_graph_of(deploy.plan)
    return NetWithInputs(plan.source.path, graph, graph.edges[0], deploy.data, deploy.left_out)
