"""Which linear maps obey a symmetry: exact equivariant bases, their increments, distances."""

from ._anchors import squared_distances as squared_distances
from ._basis import Basis as Basis
from ._basis import KernelBasis as KernelBasis
from ._cache import cache_directory as cache_directory
from ._cache import clear_cache as clear_cache
from ._equivariant import character_dimension as character_dimension
from ._equivariant import equivariant_basis as equivariant_basis
from ._equivariant import kernel_basis as kernel_basis
from ._increments import Increments as Increments
from ._increments import increments as increments
from ._orbits import Orbits as Orbits
from ._tied import Padding as Padding
from ._tied import TiedFilters as TiedFilters
from ._tied import Ties as Ties
from ._tied import tied_filters as tied_filters
