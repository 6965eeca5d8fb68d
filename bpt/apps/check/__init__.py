"""The work of ``bpt check``: compare training on many ranks with training on one process."""
