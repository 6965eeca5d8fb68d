"""Image files as the input of a net, as a Python program asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.pictures.fed_net import fed_net
from bpt.pictures.image_input import Images, image_input
from bpt.pictures.named_pictures import pictures
from bpt.plan.nets import NetPlan


def prepare_files(plan: NetPlan, weights: Sequence[str], images: Sequence[str], preprocessing: str = "") -> Images:
    """Return what image files become as the input of a net, prepared as those that it was trained with.

    Args:
        plan: the net.
        weights: the files that its parameters come from.
        images: image files, folders of them, and lists (.txt).
        preprocessing: a record that says how images are prepared, whatever the net's text says; "": none.

    Returns:
        (N, channels, height, width), float32.
    """
    files = [picture.path for picture in pictures(images)]
    return image_input(fed_net(plan), weights, preprocessing)(files).input
