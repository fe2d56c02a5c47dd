"""
What macOS has where: the places a box reads, never reads or never changes without being
told, and the services and kernel variables an ordinary program asks for.

Paths are real ones: /tmp, /var and /etc are links into /private, and Seatbelt compares
what a path leads to. Source: hier(7) of macOS, Apple's system.sb and dyld-support.sb,
Chromium's sandbox/policy/mac/common.sb.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "BASE_SERVICES",
    "HELD_HOME",
    "HIDDEN",
    "LINKS",
    "NETWORK_SERVICES",
    "OPEN_DEVICES",
    "READABLE",
    "READABLE_TOOLS",
    "RESOLVER",
    "SYSCTL_NAMES",
    "SYSCTL_PREFIXES",
]

LINKS: Final = ("/etc", "/tmp", "/var")
"""Links to the directory of the same name in /private."""

READABLE: Final = (
    "/Library/Apple",
    "/Library/Frameworks",
    "/System",
    "/System/Volumes/Preboot/Cryptexes",
    "/bin",
    "/opt",
    "/private/etc",
    "/private/var/db/dyld",
    "/private/var/db/timezone",
    "/private/var/select",
    "/sbin",
    "/usr",
)
"""The operating system's own, in every box."""

READABLE_TOOLS: Final = (
    "/Applications/Xcode.app",
    "/Library/Developer",
    "/Library/Java",
    "/private/var/db/xcode_select_link",
)
"""Compilers and the like, where the spec's base is `tools`."""

HIDDEN: Final = ("/System/Volumes",)
"""
Inside what is readable: all files of all users are there once more, below
/System/Volumes/Data (firmlinks).
"""

HELD_HOME: Final = ("Library/LaunchAgents", "Library/LaunchDaemons", "Library/Services")
"""Below a home: what launchd and Finder start by themselves. Source: launchd.plist(5)."""

OPEN_DEVICES: Final = ("/dev/dtracehelper", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
"""Character devices any program may open."""

BASE_SERVICES: Final = (
    "com.apple.PowerManagement.control",
    "com.apple.bsd.dirhelper",
    "com.apple.logd",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",
    "com.apple.system.opendirectoryd.membership",
)
"""
By name, never by a pattern: Launch Services would start programs outside the box, and
trustd fetches addresses for whoever asks.
"""

NETWORK_SERVICES: Final = (
    "com.apple.SystemConfiguration.configd",
    "com.apple.networkd",
    "com.apple.trustd",
    "com.apple.trustd.agent",
)
"""Only with the host's network, where what trustd can fetch is no more than the box can."""

RESOLVER: Final = "/private/var/run/mDNSResponder"
"""The socket by which names are looked up."""

SYSCTL_NAMES: Final = (
    "kern.argmax",
    "kern.hostname",
    "kern.maxfilesperproc",
    "kern.maxproc",
    "kern.ngroups",
    "kern.osproductversion",
    "kern.osrelease",
    "kern.ostype",
    "kern.osvariant_status",
    "kern.osversion",
    "kern.secure_kernel",
    "kern.usrstack64",
    "kern.version",
    "sysctl.proc_cputype",
    "vm.loadavg",
)
"""Without `kern.proc.*` and `kern.procargs2`, which list processes with their command lines."""

SYSCTL_PREFIXES: Final = ("hw.", "kern.sysv.", "machdep.cpu.", "net.routetable.")
"""What V8, Java, NumPy and Python's multiprocessing ask for."""
