"""A net that detects objects in images: one input, and the rows of a DetectionOutput layer."""

from __future__ import annotations

from dataclasses import dataclass

from bpt.apps.pictures.fed_net import NetWithInputs, fed_net
from bpt.base.errors import UserError
from bpt.config.plan.nets import NetPlan
from bpt.graph.layer_graph import Edge

OUTPUT = "DetectionOutput"


@dataclass(frozen=True)
class DetectorNet(NetWithInputs):
    """A net from its input to the objects that it finds.

    Attributes:
        found: the edge of the rows (image, label, score, xmin, ymin, xmax, ymax), of shape (1, 1, number, 7).
        classes: the number of classes, with the background.
    """

    found: Edge
    classes: int


def detector_net(plan: NetPlan, batch: int = 1) -> DetectorNet:
    """Return the net of ``plan``, in the phase TEST, up to its DetectionOutput layer; see fed_net.

    Raises:
        PrototxtError: the text is wrong; the error says where.
        UserError: the input or its shape cannot be determined, or the net has no DetectionOutput layer, or several.
    """
    net = fed_net(plan, batch)
    ends = [node for node in net.graph.nodes if node.type == OUTPUT]
    if len(ends) != 1:
        have = f"{len(ends)} layers ({', '.join(node.name for node in ends)})" if ends else "no layer"
        remedy = "" if ends else "; if the net gives scores to classes, ask bpt classify"
        raise UserError(
            f"{net.model}: in phase TEST it has {have} of type {OUTPUT}, but one must find the objects"
            f"{net.left_out_words}{remedy}"
        )
    end = ends[0]
    classes = end.spec.param.detection_output_param.num_classes
    return DetectorNet(
        net.model, net.graph, net.input, net.data, net.left_out, net.graph.edges[end.tops[0]], int(classes)
    )
