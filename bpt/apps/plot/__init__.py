"""``bpt plot``: read and draw the logs of training runs."""
