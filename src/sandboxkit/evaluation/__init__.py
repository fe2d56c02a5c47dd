"""
Expressions, snippets, conditions and templates nobody has to trust: evaluated in a
subset of Python, inside a process the kernel confines.
"""

from sandboxkit.evaluation._evaluator import SafeEvaluator
from sandboxkit.evaluation._functions import safe_eval, safe_eval_async, safe_eval_condition, safe_interpolate

__all__ = ["SafeEvaluator", "safe_eval", "safe_eval_async", "safe_eval_condition", "safe_interpolate"]
