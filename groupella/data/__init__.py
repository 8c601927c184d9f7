"""Data sets: public ones, a user's own, and tasks with a symmetry known by construction."""

from ._augment import Augmentation
from ._copies import FileCheck
from ._errors import DataError
from ._images import ImageData, Images
from ._load import BASES, TRANSFORMS, check_name, labelled, load
from ._moved import Moved
from ._own import from_folder, from_npz
from ._public import digits, fetch, named_directory, public, verify
from ._transforms import Resized, Rotated, Task, Transform, Translated

__all__ = [
    "BASES",
    "TRANSFORMS",
    "Augmentation",
    "DataError",
    "FileCheck",
    "ImageData",
    "Images",
    "Moved",
    "Resized",
    "Rotated",
    "Task",
    "Transform",
    "Translated",
    "check_name",
    "digits",
    "fetch",
    "from_folder",
    "from_npz",
    "labelled",
    "load",
    "named_directory",
    "public",
    "verify",
]
