"""HDF5Output: writes blobs to a file."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from bpt.base.errors import WriteError
from bpt.data.hdf5_file import Hdf5Writer
from bpt.graph.layer_spec import Arity, LayerShapes, LayerSpec, Shape
from bpt.nn.layers.base import LAYERS, Layer
from bpt.nn.pass_context import PassContext

FIELD = "hdf5_output_param"
AXES = 4
NAMES = ("data", "label")


@LAYERS.register("HDF5Output")
class HDF5Output(Layer):
    """A writer of its two bottoms to the HDF5 file ``file_name``, as datasets "data" and "label"; their diffs are 0.

    As in Caffe both datasets have 4 axes; missing axes of a bottom are 1. The first forward pass replaces an existing
    file. Each further pass appends its rows (Caffe aborts instead).
    """

    arity = Arity(bottoms=(2, 2), tops=(0, 0))
    repeatable = False

    def __init__(self, spec: LayerSpec, context: PassContext) -> None:
        super().__init__(spec, context)
        try:
            self._writer = Hdf5Writer(spec.param.hdf5_output_param.file_name)
        except WriteError as error:
            raise spec.error(str(error), FIELD, "file_name") from None

    @classmethod
    def infer(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> LayerShapes:
        if not spec.param.hdf5_output_param.file_name:
            raise spec.error(f"{FIELD} needs a file_name", FIELD, "file_name")
        for name, shape in zip(spec.bottom_names, bottoms, strict=True):
            if not 1 <= len(shape) <= AXES:
                raise spec.error(f'bottom "{name}" {shape} has {len(shape)} axes; 1 to {AXES} can be written', "bottom")
        if bottoms[0][0] != bottoms[1][0]:
            first, second = (f'"{name}" {shape}' for name, shape in zip(spec.bottom_names, bottoms, strict=True))
            raise spec.error(f"bottoms {first} and {second} have different numbers of samples (axis 0)", "bottom")
        return LayerShapes(())

    @classmethod
    def mixes_samples(cls, spec: LayerSpec, bottoms: Sequence[Shape]) -> str:
        return "it writes the samples of a whole batch to one file"

    def forward(self, *bottoms: Tensor) -> tuple[Tensor, ...]:
        rows = (bottom.detach().reshape(bottom.shape + (1,) * (AXES - bottom.dim())) for bottom in bottoms)
        self._writer.append({name: values.cpu().numpy() for name, values in zip(NAMES, rows, strict=True)})
        return ()

    def close(self) -> None:
        """Append checksums to the file. Later writing removes them until the next ``close``."""
        self._writer.close()
