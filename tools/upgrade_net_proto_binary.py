#!/usr/bin/env python3
"""Write weights that are in an old format of Caffe in today's.

    tools/upgrade_net_proto_binary.py old.caffemodel new.caffemodel

The layers of the file, V0 (2013) or V1 (2014), and other old fields are upgraded as tools/upgrade_net_proto_text.py
does it. The numbers stay as they are, and so do the shapes of blobs, also those of four axes (num, channels,
height, width), which fit where they did. bpt reads such files as they are (--weights old.caffemodel).

Exit status: 0 done; 1 written, but settings that had no meaning were dropped, or OUTPUT could not be written;
2 the command line or INPUT is wrong, or OUTPUT's folder is missing; nothing is written then.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bpt.cli.tool import run_upgrade
from bpt.config.proto.rewrite import rewrite_net_binary


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's); returns the exit status."""
    return run_upgrade(
        __file__, __doc__, "the weights, a .caffemodel", "NetParameter binary proto", rewrite_net_binary, words
    )


if __name__ == "__main__":
    sys.exit(main())
