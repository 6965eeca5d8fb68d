"""Prepare image files as the input of a net, for Python programs."""

from __future__ import annotations

from collections.abc import Sequence

from bpt.apps.pictures.fed_net import fed_net
from bpt.apps.pictures.image_input import Images, image_input
from bpt.apps.pictures.named_pictures import pictures
from bpt.config.plan.nets import NetPlan


def prepare_files(plan: NetPlan, weights: Sequence[str], images: Sequence[str], preprocessing: str = "") -> Images:
    """Return image files as the input of a net, prepared in the same way as those that it was trained with.

    Args:
        plan: the net's text.
        weights: the files that its parameters come from.
        images: image files, folders of images, and lists (.txt).
        preprocessing: a record that says how images are prepared, and overrides the net's text; "": none.

    Returns:
        (N, channels, height, width), float32.
    """
    files = [picture.path for picture in pictures(images)]
    return image_input(fed_net(plan), weights, preprocessing)(files).input
