"""From a network of paths to a plain one, once it is known which paths are needed."""

from ._harden import harden as harden
