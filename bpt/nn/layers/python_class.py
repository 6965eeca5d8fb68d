"""The search for the class that a Python layer names."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

from bpt.base.errors import LayerError, did_you_mean
from bpt.graph.layer_spec import LayerSpec
from bpt.nn.layers.caffe_import import caffe_for_import
from bpt.nn.layers.python_errors import explain

FIELD = "python_param"
REFUSED = "BPT_NO_PYTHON_LAYERS"
"""The environment variable by which nets with Python layers are refused, unless it is empty or 0."""


def find_class(spec: LayerSpec) -> type:
    """Return the class that ``python_param { module layer }`` names.

    The module is searched where Python searches (including ``PYTHONPATH``), then in the folder of the net's file, then
    in the working folder. So a file there never replaces an installed package or the standard library. The two folders
    are added to the end of ``sys.path`` and stay there, for imports of the module itself.

    Raises:
        LayerError: Python layers are refused; the module or class does not exist; or the module's import fails.
    """
    param = spec.param.python_param
    if os.environ.get(REFUSED, "") not in ("", "0"):
        raise spec.error(
            f"is code: {param.module}.{param.layer} would be run with all rights of yours, and --no-python-layers "
            f"(or {REFUSED} in the environment) refuses that",
            "type",
        )
    for field in ("module", "layer"):
        if not getattr(param, field):
            raise spec.error(f"needs python_param {{ {field} }}", FIELD, field)
    if not all(param.module.split(".")):
        raise spec.error(f'module is a name as Python imports it ("my_layers"), not "{param.module}"', FIELD, "module")
    folders = _folders(spec)
    sys.path.extend(str(folder) for folder in folders if str(folder) not in sys.path)
    module = _import(spec, folders)
    found = getattr(module, param.layer, None)
    if found is None:
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        hint = did_you_mean(param.layer, classes)
        raise spec.error(f'{_place(module)} has no class "{param.layer}"{hint}', FIELD, "layer")
    if not isinstance(found, type):
        raise spec.error(f'"{param.layer}" of {_place(module)} is not a class', FIELD, "layer")
    return found


def _folders(spec: LayerSpec) -> list[Path]:
    """Return the folder of the net's file, if it has one, and the working folder."""
    origin = spec.origin()
    return [*([Path(origin.path).resolve().parent] if origin else []), Path.cwd()]


def _import(spec: LayerSpec, folders: list[Path]) -> ModuleType:
    name = spec.param.python_param.module
    try:
        importlib.invalidate_caches()  # the file may be newer than Python's cache of its folder
        with caffe_for_import():
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name + ".").startswith(error.name + "."):
            raise _import_error(spec, error) from None  # another module, which this one imports
        files = {path.stem for folder in folders for path in folder.glob("*.py")}
        hint = did_you_mean(name, files)
        where = " or ".join(map(str, dict.fromkeys(folders)))
        raise spec.error(f'no module "{name}" in PYTHONPATH, {where}{hint}', FIELD, "module") from None
    except (Exception, SystemExit) as error:  # a script that is not a module may exit
        raise _import_error(spec, error) from None
    _check_namesake(spec, module, folders)
    return module


def _import_error(spec: LayerSpec, error: BaseException) -> LayerError:
    name = spec.param.python_param.module
    return spec.error(f'module "{name}" fails when imported: {explain(error)}', FIELD, "module")


def _check_namesake(spec: LayerSpec, module: ModuleType, folders: list[Path]) -> None:
    """Refuse a module of this name other than the file beside the net: one imported before, or installed."""
    relative = Path(*spec.param.python_param.module.split("."))
    beside = (folders[0] / relative).with_suffix(".py")
    found = getattr(module, "__file__", None)  # built-in modules have none
    if beside.is_file() and not (found and beside.samefile(found)):
        raise spec.error(
            f'{beside} is not what Python finds as "{module.__name__}", which is {found or "built in"}; '
            "give the file a name of its own",
            FIELD,
            "module",
        )


def _place(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or f'module "{module.__name__}"'
