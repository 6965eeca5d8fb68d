"""The layer types, one file each, entered in ``LAYERS`` under Caffe's names by ``@LAYERS.register``.

A file is imported when a net first has one of its types; ``type_table.py`` says which file that is.
"""

from bpt.nn.layers.base import LAYERS, DataLayer, Layer

__all__ = ["LAYERS", "DataLayer", "Layer"]
