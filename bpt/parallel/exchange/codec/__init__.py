"""What gradients become on their way between ranks, so that fewer bytes travel (``compression_param``)."""

from bpt.parallel.exchange.codec.base import CODECS, Codec

__all__ = ["CODECS", "Codec"]
