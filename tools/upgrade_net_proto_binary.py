#!/usr/bin/env python3
"""Convert weights from an old format of Caffe to today's format.

    tools/upgrade_net_proto_binary.py old.caffemodel new.caffemodel

The tool upgrades the file's V0 (2013) or V1 (2014) layers, and other old fields, as tools/upgrade_net_proto_text.py
does. Numbers and blob shapes do not change, not even old shapes of four axes (num, channels, height, width), which
still fit their layers. bpt also reads old files without the upgrade (--weights old.caffemodel).

Exit status: 0 done; 1 written, but settings without meaning were dropped, or OUTPUT could not be written;
2 the command line or INPUT is wrong, or OUTPUT's folder is missing; then nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bpt.cli.tool import run_upgrade
from bpt.config.proto.rewrite import rewrite_net_binary


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line ``words`` (None: this process's), and return the exit status."""
    return run_upgrade(
        __file__, __doc__, "the weights, a .caffemodel", "NetParameter binary proto", rewrite_net_binary, words
    )


if __name__ == "__main__":
    sys.exit(main())
