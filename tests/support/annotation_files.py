"""Annotations of one image, in every form that SSD's tool reads."""

from __future__ import annotations

import json

MAP = 'item { name: "none" label: 0 } item { name: "cat" label: 7 } item { name: "18" label: 3 display_name: "dog" }'


XML = """<annotation><size><width>40</width><height>20</height><depth>3</depth></size>
<object><name>cat</name><difficult>1</difficult><bndbox><xmin>4</xmin><ymin>5</ymin><xmax>20</xmax><ymax>10</ymax></bndbox>
  <part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox></part></object>
<object><name>18</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>40</xmax><ymax>20</ymax></bndbox></object>
<object><name>cat</name><bndbox><xmin>10</xmin><ymin>0</ymin><xmax>30</xmax><ymax>15</ymax></bndbox></object>
</annotation>"""


JSON = json.dumps(
    {
        "image": {"width": 40, "height": 20, "file_name": "a.png"},
        "annotation": [{"category_id": 18, "bbox": [4, 5, 16, 5], "iscrowd": 1}],
    }
)


TEXT = "2 4 5 20 10\n\n9 0 0 40 20\n"
