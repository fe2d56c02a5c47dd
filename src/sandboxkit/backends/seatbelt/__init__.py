"""
The profile of a box for macOS's Seatbelt. There is no backend yet: nothing here has been run
on a Mac, and nothing registers itself.
"""

from sandboxkit.backends.seatbelt._profile import Profile, profile

__all__ = ["Profile", "profile"]
