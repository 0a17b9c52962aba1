"""The public names for type checkers and editors; `__init__.py` imports the same ones lazily."""

from visionkl._version import __version__ as __version__
from visionkl.coding.pq import ProductQuantizer as ProductQuantizer
from visionkl.core.errors import DataError as DataError
from visionkl.core.errors import DeviceError as DeviceError
from visionkl.core.errors import ModelFileError as ModelFileError
from visionkl.core.errors import UsageError as UsageError
from visionkl.core.errors import VisionklError as VisionklError
from visionkl.core.image import read_image as read_image
from visionkl.core.types import Annotation as Annotation
from visionkl.core.types import Detections as Detections
from visionkl.datasets.base import Dataset as Dataset
from visionkl.datasets.base import Example as Example
from visionkl.datasets.coco import COCO as COCO
from visionkl.datasets.folder import ImageFolder as ImageFolder
from visionkl.datasets.imagenet import ImageNet as ImageNet
from visionkl.datasets.sample import make_sample_set as make_sample_set
from visionkl.datasets.voc import VOC as VOC
from visionkl.datasets.yolo import YOLO as YOLO
from visionkl.detection.detector import DPMDetector as DPMDetector
from visionkl.detection.detector import detect_all as detect_all
from visionkl.evaluation.coco import evaluate_coco as evaluate_coco
from visionkl.evaluation.errors import analyse_errors as analyse_errors
from visionkl.evaluation.voc import evaluate_voc as evaluate_voc
from visionkl.features.hog import hog as hog
from visionkl.features.pyramid import feature_pyramid as feature_pyramid
from visionkl.store import load as load
