"""What ``bpt time`` does."""
