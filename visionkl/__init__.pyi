"""The public names for type checkers and editors; `__init__.py` imports the same ones lazily."""

from visionkl._version import __version__ as __version__
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
