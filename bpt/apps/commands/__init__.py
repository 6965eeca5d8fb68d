"""The work of several commands: train, stop, restart, examples, features. ``bpt.cli`` parses flags and calls these."""
