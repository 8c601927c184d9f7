"""Data sets: public ones, a user's own, and tasks with a symmetry known by construction."""

from ._augment import Augmentation
from ._axes import Axes, axes_of, channels_first
from ._coding import KINDS, Coding, Kind, guessed, sample_weights
from ._copies import FileCheck
from ._errors import DataError
from ._images import ImageData, Images, moments, shown_range
from ._inputs import Inputs, array_of, floats, numbers
from ._load import BASES, TRANSFORMS, check_name, labelled, load
from ._moved import Moved
from ._own import from_folder, from_npz, split
from ._public import digits, fetch, named_directory, public, verify
from ._sizes import FITS, Fit, Size, chosen_size, most_sites, needs_square
from ._tables import from_csv
from ._transforms import Resized, Rotated, Task, Transform, Translated

__all__ = [
    "BASES",
    "FITS",
    "KINDS",
    "TRANSFORMS",
    "Augmentation",
    "Axes",
    "Coding",
    "DataError",
    "FileCheck",
    "Fit",
    "ImageData",
    "Images",
    "Inputs",
    "Kind",
    "Moved",
    "Resized",
    "Rotated",
    "Size",
    "Task",
    "Transform",
    "Translated",
    "array_of",
    "axes_of",
    "channels_first",
    "check_name",
    "chosen_size",
    "digits",
    "fetch",
    "floats",
    "from_csv",
    "from_folder",
    "from_npz",
    "guessed",
    "labelled",
    "load",
    "moments",
    "most_sites",
    "named_directory",
    "needs_square",
    "numbers",
    "public",
    "sample_weights",
    "shown_range",
    "split",
    "verify",
]
