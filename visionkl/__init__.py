"""Object detection and image classification with classical features and learned kernels, on a CPU.

The data go one way. A **data set** hands out pictures with their labelled boxes. A picture becomes a pyramid
of **features**. A **detector** matches its parts over the pyramid and returns `Detections`. The
**evaluation** compares those with the labels and returns an average precision. The **report** draws what a
person wants to look at.

>>> import visionkl as vkl
>>> truth = vkl.Annotation([[10, 10, 60, 50]], ["bicycle"])
>>> found = vkl.Detections([[12, 9, 61, 52], [80, 5, 90, 30]], [1.2, -0.7], "bicycle")
>>> print(found.filter(min_score=0))
1 detection: bicycle 1.200 at 12.0 9.0 61.0 52.0

Everything in `__all__` is reached as `visionkl.<name>` and imported when it is first used, so that
`import visionkl` costs a few milliseconds, and a program that only reads annotations never loads a compiler
or a plotting library. Type checkers and editors read the same names from `__init__.pyi`; a test keeps the two
lists equal.
"""

from importlib import import_module
from typing import Any

from visionkl._version import __version__

#: Every public name, and the module that defines it.
_DEFINED_IN = {
    # what travels between the layers
    "Annotation": "visionkl.core.types",
    "Detections": "visionkl.core.types",
    "read_image": "visionkl.core.image",
    # data sets
    "Dataset": "visionkl.datasets.base",
    "Example": "visionkl.datasets.base",
    "VOC": "visionkl.datasets.voc",
    "ImageNet": "visionkl.datasets.imagenet",
    "COCO": "visionkl.datasets.coco",
    "YOLO": "visionkl.datasets.yolo",
    "ImageFolder": "visionkl.datasets.folder",
    "make_sample_set": "visionkl.datasets.sample",
    # features
    "hog": "visionkl.features.hog",
    "feature_pyramid": "visionkl.features.pyramid",
    "dense_sift": "visionkl.features.sift",
    "DenseSIFT": "visionkl.features.sift",
    "FisherVector": "visionkl.features.fisher",
    "BagOfWords": "visionkl.features.words",
    "PHOG": "visionkl.features.phog",
    "LBP": "visionkl.features.lbp",
    "Channels": "visionkl.features.channels",
    "FigureGround": "visionkl.features.segments",
    # coding
    "ProductQuantizer": "visionkl.coding.pq",
    # kernels and their maps
    "kernel_matrix": "visionkl.kernels.exact",
    "FourierMap": "visionkl.kernels.fourier",
    "HomogeneousMap": "visionkl.kernels.homogeneous",
    "SparseAdditiveMap": "visionkl.kernels.additive",
    "KernelProjection": "visionkl.kernels.projection",
    "ExpChi2Map": "visionkl.kernels.rbf",
    "StumpMap": "visionkl.kernels.binary",
    "BinaryProjectionMap": "visionkl.kernels.binary",
    # learning
    "BundleSVC": "visionkl.learning.svm",
    "BundleSVR": "visionkl.learning.svm",
    "ImageClassifier": "visionkl.learning.classify",
    "FourierKernelClassifier": "visionkl.learning.single",
    "FourierKernelRegressor": "visionkl.learning.single",
    "KernelRidgeGD": "visionkl.learning.exact",
    "KernelRidgeGDClassifier": "visionkl.learning.exact",
    "FourierMKLClassifier": "visionkl.learning.multiple",
    "FourierMKLRegressor": "visionkl.learning.multiple",
    "named_model": "visionkl.learning.multiple",
    "GMKLClassifier": "visionkl.learning.gmkl",
    "GMKLRegressor": "visionkl.learning.gmkl",
    "TwinGaussianProcess": "visionkl.learning.twin",
    "TwinKernelTransform": "visionkl.learning.twin_kernels",
    "MBKLClassifier": "visionkl.learning.binary",
    # detection
    "DPMDetector": "visionkl.detection.detector",
    "detect_all": "visionkl.detection.detector",
    "ContextRescorer": "visionkl.detection.context",
    "load": "visionkl.store",
    # evaluation
    "evaluate_voc": "visionkl.evaluation.voc",
    "evaluate_coco": "visionkl.evaluation.coco",
    "analyse_errors": "visionkl.evaluation.errors",
    # errors
    "DataError": "visionkl.core.errors",
    "DeviceError": "visionkl.core.errors",
    "ModelFileError": "visionkl.core.errors",
    "UsageError": "visionkl.core.errors",
    "VisionklError": "visionkl.core.errors",
}

__all__ = ["__version__", *_DEFINED_IN]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for (PEP 562)."""
    if name not in _DEFINED_IN:
        raise AttributeError(f"module 'visionkl' has no attribute {name!r}")
    value = getattr(import_module(_DEFINED_IN[name]), name)
    globals()[name] = value  # the next access finds it without coming here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_DEFINED_IN})
