"""``bpt new``: from a folder of pictures to a network, a solver and lists that are ready to train.

``labelled_folder.py`` finds and decodes the pictures, ``split_pictures.py`` divides them, ``starter_net.py`` chooses
the network, and ``starter_files.py`` writes all of it.
"""
