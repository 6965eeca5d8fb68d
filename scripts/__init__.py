"""Programs around bpt: they make data and network texts, measure, and build a test bed. bpt itself knows nothing of it.

A program of this folder puts the repository's root on ``sys.path`` and imports from here, as the tests do.
"""
