"""Networks: the paper's trunk and presets, and invariant networks that train fast."""

from ._convert import Conversion as Conversion
from ._convert import ConvertedLayer as ConvertedLayer
from ._convert import NotConvertibleError as NotConvertibleError
from ._convert import convert as convert
from ._equivariant import EquivariantNet as EquivariantNet
from ._equivariant import TensorBlock as TensorBlock
from ._equivariant import equivariant_net as equivariant_net
from ._frozen import FrozenBatchNorm as FrozenBatchNorm
from ._frozen import freeze_statistics as freeze_statistics
from ._invariant import InvariantHead as InvariantHead
from ._invariant import InvariantNet as InvariantNet
from ._invariant import fold as fold
from ._invariant import invariant_net as invariant_net
from ._presets import PRESETS as PRESETS
from ._presets import Preset as Preset
from ._presets import count_parameters as count_parameters
from ._presets import preset as preset
from ._recipe import made_from as made_from
from ._recipe import recipe as recipe
from ._trunk import PAPER_BLOCKS as PAPER_BLOCKS
from ._trunk import Block as Block
from ._trunk import Trunk as Trunk
from ._trunk import trunk as trunk
from ._units import with_units as with_units
