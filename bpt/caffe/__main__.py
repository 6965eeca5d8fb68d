"""``python -m bpt.caffe script.py …`` runs a script that imports caffe."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from bpt.nn.layers.caffe_import import install


def main(arguments: list[str]) -> int:
    """Run the script as Python would, and return 0; a script that calls ``sys.exit`` ends with its own status."""
    if not arguments or not Path(arguments[0]).is_file():
        print("error: python -m bpt.caffe SCRIPT [ARGUMENT ...]: name a script that imports caffe", file=sys.stderr)
        return 2
    install()
    sys.argv[:] = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
