"""``bpt test``: score a network."""
