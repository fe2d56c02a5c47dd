"""
Run what you do not trust: decided by rules, in the strongest isolation this machine
really has, with what was enforced in the result.
"""
