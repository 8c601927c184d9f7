"""Networks of residual-pathway layers: the paper's trunk, and every row of its tables by name."""

from ._presets import PRESETS as PRESETS
from ._presets import Preset as Preset
from ._presets import count_parameters as count_parameters
from ._presets import preset as preset
from ._trunk import PAPER_BLOCKS as PAPER_BLOCKS
from ._trunk import Block as Block
from ._trunk import Trunk as Trunk
from ._trunk import trunk as trunk
