"""Detection of objects as boxes, with the arithmetic of SSD's Caffe.

The paper is Liu et al., *SSD: Single Shot MultiBox Detector*, 2016. A box is (xmin, ymin, xmax, ymax), mostly as
fractions of its image: (0, 0, 1, 1) is all of it. These modules do not depend on nets.
"""
