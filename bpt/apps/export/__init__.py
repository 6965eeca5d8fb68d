"""The export of a net to a file that runs without bpt, and its check against the net: ``bpt export``."""
