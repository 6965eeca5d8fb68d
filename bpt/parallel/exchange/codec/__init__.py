"""Codecs: gradients are compressed on their way between ranks (``compression_param``)."""

from bpt.parallel.exchange.codec.base import CODECS, Codec

__all__ = ["CODECS", "Codec"]
