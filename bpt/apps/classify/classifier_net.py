"""A net that classifies images or scans: one input, and class scores."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.apps.pictures.fed_net import NetWithInputs, fed_net
from bpt.base.errors import UserError
from bpt.config.plan.nets import NetPlan
from bpt.graph.layer_graph import Edge
from bpt.graph.layer_spec import count


@dataclass(frozen=True)
class ClassifierNet(NetWithInputs):
    """A net from its input to its class scores; all layers between them can compute gradients.

    Attributes:
        scores: the edge of the scores, of shape (N, classes), perhaps with further axes of length 1.
        found: words that say which blob the scores are, and why.
        by_softmax: whether a softmax over the scores gives probabilities.
    """

    scores: Edge
    found: str
    by_softmax: bool

    @property
    def classes(self) -> int:
        return self.scores.shape[1]


def classifier_net(plan: NetPlan, batch: int = 1) -> ClassifierNet:
    """Return the net of ``plan``, in the phase TEST, with its class scores; see fed_net.

    The scores are the bottom of the last Softmax whose top no other layer reads; without one they are the net's only
    output.

    Raises:
        PrototxtError: the text is wrong; the error says where.
        UserError: the input, its shape or the scores cannot be determined.
    """
    net = fed_net(plan, batch, force_backward=True)
    scores, found, by_softmax = _find_scores(net)
    return ClassifierNet(net.model, net.graph, net.input, net.data, net.left_out, scores, found, by_softmax)


def _find_scores(net: NetWithInputs) -> tuple[Edge, str, bool]:
    """Return the edge of the class scores, how it was found, and whether a Softmax follows."""
    graph = net.graph
    ends = [node for node in graph.nodes if node.type == "Softmax" and graph.edges[node.tops[0]].consumer is None]
    if ends:
        edge = graph.edges[ends[-1].bottoms[0]]
        found = f'the bottom of "{ends[-1].name}", the last softmax'
        if ends[-1].spec.param.softmax_param.axis % len(edge.shape) != 1:
            raise ends[-1].spec.error("the classes must be along axis 1", "softmax_param", "axis")
    else:
        outputs = [edge for edge in graph.outputs if edge.shape and graph.nodes[edge.producer].type != "Input"]
        if len(outputs) != 1:
            names = ", ".join(f'"{edge.blob}"' for edge in outputs) or "none"
            raise UserError(
                f"{net.model}: cannot tell the class scores: no Softmax at the end, and not one output ({names})"
                f"{net.left_out_words}"
            )
        edge, found = outputs[0], "the net's output"
    if len(edge.shape) < 2 or edge.shape[0] != net.input.shape[0] or count(edge.shape[1:]) != edge.shape[1]:
        raise UserError(
            f'{net.model}: blob "{edge.blob}", {found}, has shape {edge.shape}; there must be a score for each class, '
            "(N, classes)"
        )
    return edge, found, bool(ends)
