"""
Keeps secrets out of what is written down.
"""

from sandboxkit.secrets._holding import secret_in
from sandboxkit.secrets._masking import MARKER, Masker
from sandboxkit.secrets._registry import MIN_LENGTH, SecretRegistry
from sandboxkit.secrets._shapes import SHAPES, Shape

__all__ = ["MARKER", "MIN_LENGTH", "SHAPES", "Masker", "SecretRegistry", "Shape", "secret_in"]
