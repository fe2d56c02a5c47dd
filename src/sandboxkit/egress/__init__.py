"""
Connections to the network, each of them checked where it is made.
"""

from sandboxkit.egress._check import check

__all__ = ["check"]
