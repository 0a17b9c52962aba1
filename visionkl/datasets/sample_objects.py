"""The classes of the sample set: what each is made of, and how its parts move.

A class is one short function. It takes a random generator and whether the object is seen from the front, and
returns the object's parts from back to front, in the units of `visionkl.datasets.sample_shapes`. Everything
drawn from the generator (joint angles, offsets, proportions) differs from object to object: that is what
makes a rigid template lose. Parts move much and change their own size little, as a part model expects.

========  ===================================================================================
class     what moves
========  ===================================================================================
digger    boom, stick and bucket about their joints; the cab on the house, the house on the tracks
robot     the head on its springy neck, the arms and legs about their joints
tricycle  the front wheel, the steering column with the handlebar, the saddle, the pedals
========  ===================================================================================

To add a class, write such a function and put it into `CLASSES`. Mirror images, sizes, slopes, light, clutter
and occlusion come by themselves (`visionkl.datasets.sample_scenes`).
"""

from collections.abc import Callable

import numpy as np

from visionkl.datasets.sample_shapes import (
    Part,
    Point,
    Random,
    along,
    box,
    ellipse,
    limb,
    line,
    part,
    polygon,
    tube,
    wheel,
)

DrawObject = Callable[[Random, bool], list[Part]]


# -- tricycle ------------------------------------------------------------------------------------------------


def tricycle(rng: Random, frontal: bool) -> list[Part]:
    """Build a child's tricycle: a large wheel in front, two small ones behind, a saddle and a handlebar."""
    return _tricycle_front(rng) if frontal else _tricycle_side(rng)


def _tricycle_side(rng: Random) -> list[Part]:
    u = rng.uniform
    front, rear = u(0.26, 0.3), u(0.16, 0.19)
    axle, top = (u(0.44, 1.02), front), u(0.72, 1.08)
    rake = u(80, 126)
    head = along(axle, rake, (top - front) / _rise(rake))
    neck = along(axle, rake, u(0.45, 0.7) * (top - front))
    saddle = (u(-0.1, 0.44), u(0.42, 0.75))
    bend = (saddle[0] + u(0.0, 0.12), u(0.26, 0.4))
    crank = u(0, 180)
    pedals = (along(axle, crank, 0.14), along(axle, crank, -0.14))
    cushion = ((-0.15, 0.07), (-0.13, -0.02), (0.02, -0.05), (0.15, 0.0), (0.15, 0.04), (-0.02, 0.03))
    grip = (
        line("dark", 0.075, (-0.19, -0.03), (-0.04, 0)),
        line("metal", 0.035, (-0.06, 0), (0, 0)),
        ellipse("glass", (0.08, -0.05), 0.06),
    )
    return [
        wheel("rear wheel", rng, (0, rear), rear),
        part("step", box("trim", -0.16, rear + 0.02, 0.16, rear + 0.07)),
        part("frame", *tube("body", 0.055, (0, rear), bend, neck), line("metal", 0.035, bend, saddle)),
        wheel("front wheel", rng, axle, front),
        part(
            "pedals",
            line("metal", 0.025, *pedals),
            *(box("dark", x - 0.05, y - 0.018, x + 0.05, y + 0.018) for x, y in pedals),
        ),
        part("column", *tube("body", 0.04, axle, head)),
        part("saddle", polygon("dark", *cushion)).turned(u(-12, 10)).moved(saddle),
        part("handlebar", *grip).turned(u(-15, 20)).moved(head),
    ]


def _tricycle_front(rng: Random) -> list[Part]:
    u = rng.uniform
    front, rear = u(0.26, 0.3), u(0.16, 0.19)
    left, right = (-u(0.16, 0.5), rear), (u(0.16, 0.5), rear)
    lean, neck, top = u(-0.18, 0.18), u(0.5, 0.62), u(0.72, 1.12)
    fork = ((lean - 0.09, front), (lean - 0.07, neck), (lean + 0.07, neck), (lean + 0.09, front))
    lamp = (u(-0.03, 0.03), neck + u(-0.1, 0.5) * (top - neck))
    return [
        wheel("rear wheel", rng, left, rear, squash=u(0.25, 0.5)),
        wheel("rear wheel", rng, right, rear, squash=u(0.25, 0.5)),
        part("axle", line("body", 0.05, left, (0, 0.42), right)),
        part("saddle", ellipse("dark", (u(-0.14, 0.14), u(0.45, 0.72)), 0.15, 0.07)),
        wheel("front wheel", rng, (lean, front), front, squash=u(0.2, 0.4)),
        part("fork", *tube("body", 0.035, *fork), line("metal", 0.05, (lean, neck), (0, top))),
        part("lamp", ellipse("glass", lamp, 0.08), ellipse("light", lamp, 0.035)),
        _wide_handlebar(u(0.22, 0.36), droop=u(-0.05, 0.09)).turned(u(-10, 10)).moved((0, top)),
    ]


def _wide_handlebar(reach: float, droop: float) -> Part:
    bend = (
        (-reach, -droop),
        (-reach * 0.45, 0.0),
        (0.0, -0.03),
        (reach * 0.45, 0.0),
        (reach, -droop),
    )
    grips = (line("dark", 0.075, *bend[:2]), line("dark", 0.075, *bend[3:]))
    return part("handlebar", *tube("metal", 0.04, *bend), *grips)


# -- robot ---------------------------------------------------------------------------------------------------


def robot(rng: Random, frontal: bool) -> list[Part]:
    """Build a tin robot: head on a springy neck, torso with dials, jointed arms with claws, jointed legs."""
    u = rng.uniform
    hip = u(0.22, 0.4)
    shoulder = hip + u(0.28, 0.36)
    half = u(0.17, 0.21) if frontal else u(0.12, 0.15)
    lean = u(-0.07, 0.07)
    neck = (lean + u(-0.2, 0.2), shoulder + u(0.02, 0.24))
    coils = np.linspace((lean, shoulder - 0.03), neck, 7)
    coils[:6:2, 0] += 0.03
    coils[1:6:2, 0] -= 0.03
    spring = [(float(x), float(y)) for x, y in coils]
    trunk = [
        part("neck", line("ink", 0.045, *spring), line("metal", 0.025, *spring)),
        _torso(half, shoulder - hip).turned(u(-8, 8)).moved((lean, hip)),
    ]
    head = _head(rng, frontal).turned(u(-12, 12)).moved(neck)
    if frontal:
        return [
            *_leg(rng, (lean - half * 0.6, hip), u(-122, -80), u(-10, 30), ahead=-0.02),
            *_leg(rng, (lean + half * 0.6, hip), u(-100, -58), u(-30, 10), ahead=0.02),
            *trunk,
            *_arm(rng, (lean - half - 0.03, shoulder - 0.05), u(165, 275), u(100, 290)),
            *_arm(rng, (lean + half + 0.03, shoulder - 0.05), u(-95, 15), u(-110, 80)),
            head,
        ]
    return [
        *_leg(rng, (lean, hip), u(-130, -92), -u(0, 20), ahead=0.05),
        *_leg(rng, (lean, hip), u(-90, -50), -u(0, 30), ahead=0.05),
        *trunk,
        head,
        *_arm(rng, (lean, shoulder - 0.07), u(-120, 20), u(-80, 80)),
    ]


def _torso(half: float, height: float) -> Part:
    slots = (line("ink", 0.012, (-half * 0.6, y), (half * 0.6, y)) for y in (0.03, 0.06, 0.09))
    dials = (ellipse("glass", (x * half, 0.18), 0.03) for x in (-0.4, 0.4))
    chest = box("trim", -half * 0.7, 0.13, half * 0.7, height - 0.05)
    return part("torso", box("body", -half, 0, half, height, corner=0.03), chest, *dials, *slots)


def _head(rng: Random, frontal: bool) -> Part:
    u = rng.uniform
    width, height, aerial = u(0.11, 0.14), u(0.18, 0.22), u(-0.05, 0.05)
    tip = (aerial * 1.8, height + u(0.03, 0.1))
    skull = (
        line("metal", 0.02, (aerial, height), tip),
        ellipse("trim", tip, 0.025),
        box("body", -width, 0, width, height, corner=0.025),
    )
    if frontal:
        eyes = [(side * 0.48 * width, height * 0.62) for side in (-1, 1)]
        ears = [side * 1.1 * width for side in (-1, 1)]
        return part(
            "head",
            *skull,
            *(ellipse("light", eye, 0.038) for eye in eyes),
            *(ellipse("dark", eye, 0.017) for eye in eyes),
            box("dark", -width * 0.6, height * 0.14, width * 0.6, height * 0.28),
            *(box("metal", x - 0.02, height * 0.3, x + 0.02, height * 0.6) for x in ears),
        )
    return part(
        "head",
        *skull,
        polygon("trim", (width, height * 0.2), (width + 0.07, height * 0.25), (width, height * 0.5)),
        ellipse("light", (width * 0.5, height * 0.65), 0.04),
        ellipse("dark", (width * 0.6, height * 0.65), 0.018),
        ellipse("metal", (-width * 0.35, height * 0.45), 0.045),
    )


def _arm(rng: Random, start: Point, upper: float, lower: float) -> list[Part]:
    upper_arm, elbow = limb("upper arm", "body", start, upper, rng.uniform(0.1, 0.2), 0.06)
    forearm, wrist = limb("forearm", "metal", elbow, lower, rng.uniform(0.08, 0.16), 0.05)
    fingers = [(along(wrist, lower + turn, 0.07), along(wrist, lower + turn / 4, 0.14)) for turn in (-50, 50)]
    claw = part("claw", *(line("dark", 0.035, wrist, *finger) for finger in fingers))
    return [upper_arm, forearm, claw]


def _leg(rng: Random, hip: Point, thigh_angle: float, bend: float, ahead: float) -> list[Part]:
    # The foot stands on the ground: the shin takes up whatever height the thigh leaves.
    knee_height = hip[1] * rng.uniform(0.42, 0.6)
    reach = (hip[1] - knee_height) / _rise(thigh_angle)
    thigh, knee = limb("thigh", "metal", hip, thigh_angle, reach, 0.075)
    reach = (knee_height - 0.05) / _rise(thigh_angle + bend)
    shin, ankle = limb("shin", "body", knee, thigh_angle + bend, reach, 0.085)
    sole = polygon("dark", (-0.1, 0), (0.1, 0), (0.09, 0.05), (0.02, 0.09), (-0.09, 0.09))
    return [thigh, shin, part("foot", sole).moved((ankle[0] + ahead, 0))]


# -- digger --------------------------------------------------------------------------------------------------


def digger(rng: Random, frontal: bool) -> list[Part]:
    """Build an excavator: tracks, a house with a cab, and a boom, a stick and a bucket on three joints."""
    return _digger_front(rng) if frontal else _digger_side(rng)


def _digger_side(rng: Random) -> list[Part]:
    u = rng.uniform
    high, length = u(0.19, 0.23), u(0.72, 0.92)
    front, roof = u(0.15, 0.7), u(0.48, 0.58)
    boom_angle, stick_angle = u(36, 66), u(-88, -48)
    pivot = (front - 0.04, high + u(0.08, 0.2))
    elbow = along(pivot, boom_angle, u(0.46, 0.58))
    stick, wrist = limb("stick", "trim", elbow, stick_angle, u(0.3, 0.42), 0.07)
    boom = tube("trim", 0.09, pivot, along(pivot, boom_angle + 16, 0.26), elbow)
    rollers = np.linspace(high / 2 - length / 2, length / 2 - high / 2, int(rng.integers(3, 6)))
    louvres = (line("ink", 0.016, (-0.7, y), (-0.46, y)) for y in (0.1, 0.15, 0.2))
    scoop = ((-0.05, 0.04), (0.07, 0.06), (0.12, -0.06), (0.06, -0.2), (-0.08, -0.24), (-0.19, -0.18))
    teeth = ((-0.17, -0.18), (-0.1, -0.14))
    return [
        part(
            "tracks",
            box("dark", -length / 2, 0, length / 2, high, corner=high * 0.35),
            *(ellipse("metal", (float(x), high / 2), high * 0.3) for x in rollers),
            line("metal", 0.02, (0.08 - length / 2, high - 0.03), (length / 2 - 0.08, high - 0.03)),
        ),
        part(
            "house",
            polygon("body", (-0.78, 0.04), (0, 0.02), (0, 0.22), (-0.4, 0.3), (-0.74, 0.26)),
            *louvres,
        ).moved((front, high)),
        part("boom", *boom, ellipse("metal", pivot, 0.045)),
        stick,
        part(
            "bucket",
            polygon("metal", *scoop, (-0.06, -0.1)),
            *(polygon("dark", (x, y), (x - 0.06, y - 0.03), (x - 0.02, y + 0.04)) for x, y in teeth),
        )
        .turned(u(-20, 20))
        .moved(wrist),
        part(
            "cab",
            polygon("body", (-0.13, 0.0), (0.2, 0.0), (0.19, 0.22), (0.11, roof), (-0.13, roof)),
            polygon("glass", (-0.08, 0.18), (0.14, 0.18), (0.08, roof - 0.05), (-0.08, roof - 0.05)),
            line("ink", 0.016, (0, 0.18), (0, roof - 0.05)),
        ).moved((front - u(0.18, 0.64), high + u(0.05, 0.24))),
    ]


def _digger_front(rng: Random) -> list[Part]:
    u = rng.uniform
    high, roof, side = u(0.19, 0.23), u(0.52, 0.62), rng.choice([-1.0, 1.0])
    pivot = (side * u(0.04, 0.22), high + 0.14)
    elbow = (pivot[0] + u(-0.12, 0.12), u(0.65, 1.1))
    wrist = (pivot[0] + u(-0.25, 0.25), u(0.12, 0.5))
    louvres = (line("ink", 0.014, (-0.24, y), (0.24, y)) for y in (0.09, 0.14))
    teeth = (polygon("dark", (x - 0.03, -0.12), (x + 0.03, -0.12), (x, -0.19)) for x in (-0.12, 0, 0.12))
    return [
        _front_track(high).moved((-u(0.22, 0.4), 0)),
        _front_track(high).moved((u(0.22, 0.4), 0)),
        part("house", box("body", -0.3, 0, 0.3, 0.28, corner=0.03), *louvres).moved((0, high - 0.04)),
        part(
            "cab",
            box("body", -0.15, 0, 0.15, roof, corner=0.03),
            box("glass", -0.11, 0.14, 0.11, roof - 0.05),
            line("ink", 0.016, (0, 0.14), (0, roof - 0.05)),
        ).moved((-side * u(0.0, 0.22), high + u(0.1, 0.24))),
        part("boom", *tube("trim", 0.095, pivot, elbow)),
        part("stick", *tube("trim", 0.075, elbow, wrist), ellipse("metal", elbow, 0.05)),
        part(
            "bucket",
            box("metal", -0.17, -0.12, 0.17, 0.1, corner=0.02),
            line("ink", 0.016, (-0.16, 0.02), (0.16, 0.02)),
            *teeth,
        )
        .turned(u(-15, 15))
        .moved((wrist[0], wrist[1] + 0.08)),
    ]


def _front_track(high: float) -> Part:
    treads = (line("metal", 0.018, (-0.08, y), (0.08, y)) for y in np.arange(0.04, high + 0.03, 0.05))
    return part("track", box("dark", -0.1, 0, 0.1, high + 0.06, corner=0.03), *treads)


def _rise(degrees: float) -> float:
    return abs(float(np.sin(np.deg2rad(degrees))))


#: The classes of the sample set, by name.
CLASSES: dict[str, DrawObject] = {"digger": digger, "robot": robot, "tricycle": tricycle}
