"""``python -m bpt`` is ``bpt``."""

import sys

from bpt.cli.main import main

sys.exit(main())
