"""Detection of objects as boxes, in the arithmetic of SSD's Caffe.

The paper is Liu et al., *SSD: Single Shot MultiBox Detector*, 2016. A box is (xmin, ymin, xmax, ymax), mostly in parts
of its image: (0, 0, 1, 1) is all of it. Nothing here knows of nets.
"""
