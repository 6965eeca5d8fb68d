"""Deconvolution: a convolution the other way round, to enlarge."""

from __future__ import annotations

from bpt.layers.base import LAYERS
from bpt.layers.convolution import BaseConvolution


@LAYERS.register("Deconvolution")
class Deconvolution(BaseConvolution):
    """Each element of a bottom puts the filters, times itself, on the top; where they overlap they add up.

    So forward is what a Convolution from the top to the bottom does backward, and the places on a spatial axis are
    ``stride · (in - 1) + extent - 2·pad``. Blobs: filters ``(channels, num_output / group, kernel …)``, and
    ``(num_output,)`` if ``bias_term``. A filler takes the axes of the filters as it does for all layers, so that its
    ``FAN_IN`` is ``num_output / group · kernel``. Everything else is as in Convolution.
    """

    transposed = True
