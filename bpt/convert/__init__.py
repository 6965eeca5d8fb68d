"""``bpt convert``: weights from one format to another."""
