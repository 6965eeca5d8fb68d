"""``bpt compare``: several strategies train in turn, and their outcomes become one table and one figure."""
