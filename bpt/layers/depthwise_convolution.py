"""DepthwiseConvolution: the name that MobileNets in Caffe's format have for a Convolution of single channels."""

from __future__ import annotations

from bpt.layers.base import LAYERS
from bpt.layers.convolution import Convolution


@LAYERS.register("DepthwiseConvolution")
class DepthwiseConvolution(Convolution):
    """A Convolution, with the same ``convolution_param`` and blobs; torch finds the fast way by itself.

    Nets set ``group`` to the number of channels. It is not set by the layer: without it there is one group, as in
    Convolution.
    """

    multiplies = False  # its filters see one channel each: too little for a product of matrices
