"""The layer types, one file each, entered in ``LAYERS`` under Caffe's names by ``@LAYERS.register``.

Importing this package imports every file in it, so a new layer is a new file and nothing else.
"""

import importlib
import pkgutil

from bpt.layers.base import LAYERS, DataLayer, Layer

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["LAYERS", "DataLayer", "Layer"]
