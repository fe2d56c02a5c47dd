"""
The ways to isolate a command, the contract they keep, and the registry that picks one.
"""
