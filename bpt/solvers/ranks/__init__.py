"""One run on many ranks: how it is spread over them, and what they must agree on."""
