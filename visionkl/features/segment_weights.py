"""What the default ranking of segments learned from photographs; `visionkl.features.segment_ranking` uses it.

`FigureGround(...).fit(pictures, masks)` learned these from the 124 training pictures that have masks in a
part of VOC2012 with many bicycles and buses. Each row has a feature's centre and scale, and the coefficients
of the feature, of its square, and of its product with the logarithm of the area.
"""

CONSTANT = -9.064
ROWS = {
    "cost of the outline": (-2.122, 0.8179, -0.7356, 0.06832, -0.1453),
    "outline": (-2.251, 0.6054, -0.3537, -0.1434, 0.2803),
    "weak share": (0.2512, 0.2362, -0.08623, 0.1564, 0.1227),
    "firm share": (0.3975, 0.2394, -0.114, -0.003841, -0.01182),
    "fine strength": (0.3258, 0.06494, -0.02702, -0.03111, -0.1254),
    "texture strength": (0.09796, 0.02012, 0.1085, -0.2799, -0.1348),
    "inside": (-3.259, 0.8782, -0.3122, -0.08253, 0.0628),
    "outline over inside": (0.8243, 0.5441, -0.05705, -0.09127, -0.06084),
    "colour across": (0.3802, 0.1444, 0.3977, -0.09481, -0.009425),
    "texture across": (0.1532, 0.09093, -0.05529, 0.1269, 0.1508),
    "colour against rest": (0.4644, 0.1446, -0.06414, -0.1167, 0.08527),
    "texture against rest": (0.1945, 0.1272, -0.03566, 0.1919, 0.1718),
    "spread of colour": (0.1785, 0.09477, 0.4905, -0.01174, -0.06455),
    "log area": (-2.477, 1.669, -0.7697, 0.1586, 0.1586),
    "area": (0.2061, 0.2277, -0.2501, -0.2417, 0.6286),
    "compactness": (2.221, 0.4061, -0.5206, 0.1985, -0.07138),
    "edge sides": (0.06236, 0.1428, -0.3839, 0.1764, -0.143),
    "edge top": (0.05608, 0.1692, -0.06195, 0.236, -0.3675),
    "edge bottom": (0.1165, 0.2577, 0.1805, -0.02996, -0.2706),
    "off centre": (0.1615, 0.1333, 0.09116, 0.161, 0.04162),
    "height": (0.01566, 0.2022, 0.1604, -0.07013, 0.05603),
    "roundness": (-0.2827, 0.2758, 0.5883, 0.1755, 0.1144),
    "aspect": (0.2954, 0.5658, -0.2414, 0.121, 0.06339),
    "box filled": (0.574, 0.1737, -0.05165, -0.08837, -0.07009),
    "outline length": (0.9822, 1.03, 0.7174, 0.487, -0.7829),
    "lightness across": (0.1757, 0.121, -0.05786, -0.009925, -0.04794),
    "edge share": (0.07637, 0.1135, -0.3136, 0.09426, -0.1106),
    "tall": (0.03391, 0.181, -0.02046, -0.04528, 0.2519),
}
