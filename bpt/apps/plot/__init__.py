"""What ``bpt plot`` does: logs read, and drawn."""
