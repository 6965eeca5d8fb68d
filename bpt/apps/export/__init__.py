"""What ``bpt export`` does: a net as a file that runs without bpt, and whether it does what the net does."""
