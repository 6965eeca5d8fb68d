"""Pictures as the input of a trained net: which ones are meant, how they are prepared, and a net that takes them."""
