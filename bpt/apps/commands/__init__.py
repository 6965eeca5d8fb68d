"""What commands do beyond training: time, compare, score. ``bpt.cli`` parses and calls these."""
