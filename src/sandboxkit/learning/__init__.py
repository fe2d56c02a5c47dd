"""
From a command to the smallest spec that lets it pass, one approved refusal at a time.
"""

from sandboxkit.learning._learn import Lesson, learn_spec

__all__ = ["Lesson", "learn_spec"]
