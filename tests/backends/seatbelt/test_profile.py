"""
Profiles for macOS, against a reading of their language written for these tests: nothing
here runs on a Mac.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import pytest

from sandboxkit.backends._tree import Node, Tree
from sandboxkit.backends.seatbelt import Profile, profile


def parsed(text: str) -> list[Any]:
    """
    The expressions of a profile, as lists and words; a string keeps its first quote.
    """
    words = re.findall(r'"(?:[^"\\]|\\.)*"|[()]|[^\s()"]+', text)
    stack: list[list[Any]] = [[]]
    for word in words:
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word[:-1] if word.startswith('"') else word)
    assert len(stack) == 1, "the brackets do not match"
    return stack[0]


class Reference:
    """
    What a profile says of an operation: the last rule that fits decides.
    """

    def __init__(self, made: Profile) -> None:
        self.rules = parsed(made.text)
        self.parameters = dict(made.parameters)

    def allows(self, operation: str, path: str = "", **about: str) -> bool:
        """
        Whether *operation* is allowed on *path*.
        """
        verdict: bool | None = None
        for action, *words in self.rules:
            if action == "version":
                continue
            operations = [word for word in words if isinstance(word, str)]
            filters = [word for word in words if isinstance(word, list)]
            if operations == ["default"]:
                verdict = action == "allow" if verdict is None else verdict
            elif any(fnmatchcase(operation, pattern) for pattern in operations) and (
                not filters or any(self.fits(one, path, about) for one in filters)
            ):
                verdict = bool(action == "allow")
        assert verdict is not None, "a profile begins with a default"
        return verdict

    def text(self, value: Any) -> str:
        if isinstance(value, list):
            assert value[0] == "param"
            return str(self.parameters[value[1][1:]])
        assert value.startswith('"')
        return str(value[1:])

    def fits(self, one: list[Any], path: str, about: dict[str, str]) -> bool:
        kind, *rest = one
        match kind:
            case "literal":
                return bool(path == self.text(rest[0]))
            case "subpath":
                root = self.text(rest[0])
                return path == root or path.startswith(root.rstrip("/") + "/")
            case "remote":
                return bool(about.get("remote") == self.text(rest[1]))
            case "target":
                return bool(about.get("target") == rest[0])
            case "sysctl-name" | "global-name" | "iokit-registry-entry-class":
                return about.get(kind) == self.text(rest[0])
            case "sysctl-name-prefix":
                return about.get("sysctl-name", "").startswith(self.text(rest[0]))
        raise AssertionError(f"the reference does not know {kind}")


TREE = Tree(
    {
        "/usr": Node.READ,
        "/Users/me/ws": Node.WRITE,
        "/Users/me/ws/a/secret": Node.HIDDEN,
        "/Users/me/ws/a/secret/shown": Node.READ,
        "/Users/me/ws/.git/hooks": Node.READ,
        "/private/tmp": Node.PRIVATE,
    },
    frozenset(),
)


@pytest.mark.parametrize(
    ("operation", "path", "allowed"),
    [
        ("file-read-data", "/usr/bin/env", True),
        ("file-write-data", "/usr/bin/env", False),
        ("file-read-data", "/Users/me/.ssh/id", False),
        ("file-read-data", "/Users/me", False),
        ("file-read-metadata", "/Users/me", True),
        ("file-read-metadata", "/Users/me/.ssh", False),
        ("file-read-data", "/Users/me/ws/file", True),
        ("file-write-create", "/Users/me/ws/new", True),
        ("file-write-create", "/Users/me/ws2/new", False),
        ("file-read-data", "/Users/me/ws/a/secret", False),
        ("file-read-data", "/Users/me/ws/a/secret/x", False),
        ("process-exec", "/Users/me/ws/a/secret/x", False),
        ("file-read-data", "/Users/me/ws/a/secret/shown/x", True),
        ("file-write-data", "/Users/me/ws/a/secret/shown/x", False),
        ("file-write-data", "/Users/me/ws/.git/hooks/pre-commit", False),
        ("file-write-data", "/Users/me/ws/.git/index", True),
        # what is held cannot be moved away, nor what leads to it
        ("file-write-unlink", "/Users/me/ws/.git/hooks", False),
        ("file-write-unlink", "/Users/me/ws/.git", False),
        ("file-write-create", "/Users/me/ws/.git", False),
        ("file-write-unlink", "/Users/me/ws/a", False),
        ("file-write-unlink", "/Users/me/ws/a/secret", False),
        ("file-write-unlink", "/Users/me/ws", False),
        ("file-write-unlink", "/Users/me/ws/a/other", True),
        ("file-read-data", "/private/tmp/of-others", False),
        ("file-write-data", "/dev/null", True),
        ("file-read-data", "/dev/disk0", False),
    ],
)
def test_files(operation: str, path: str, allowed: bool) -> None:
    assert Reference(profile(TREE)).allows(operation, path) is allowed


def test_the_network_is_off_but_for_the_proxy() -> None:
    off, proxied = Reference(profile(TREE)), Reference(profile(TREE, proxy_port=8123))
    for operation in ("network-outbound", "network-inbound", "network-bind"):
        assert not off.allows(operation, remote="localhost:8123")
        assert not proxied.allows(operation, remote="localhost:53")
    assert proxied.allows("network-outbound", remote="localhost:8123")
    assert not proxied.allows("network-outbound", remote="1.2.3.4:8123")
    assert not proxied.allows("network-inbound", remote="localhost:8123")
    for port in (0, 65536, True):
        with pytest.raises(ValueError, match="proxy_port"):
            profile(TREE, proxy_port=port)


def test_other_processes_and_services_are_out_of_reach() -> None:
    made = Reference(profile(TREE))
    assert made.allows("signal", target="same-sandbox")
    assert not made.allows("signal", target="others")
    assert not made.allows("mach-lookup", **{"global-name": "com.apple.SecurityServer"})
    assert not made.allows("mach-lookup", **{"global-name": "com.apple.trustd"})
    assert not made.allows("mach-register")
    assert not made.allows("appleevent-send")
    assert made.allows("sysctl-read", **{"sysctl-name": "hw.ncpu"})
    assert not made.allows("sysctl-write", **{"sysctl-name": "hw.ncpu"})


@pytest.mark.parametrize("name", ['a")) (allow default', "a\\", "(param", "a b\n(allow network*)", "x=y"])
def test_no_name_of_a_file_says_anything(name: str) -> None:
    path = f"/Users/me/{name}"
    made = profile(Tree({path: Node.WRITE}, frozenset()))
    plain = profile(Tree({"/Users/me/plain": Node.WRITE}, frozenset()))
    assert made.text == plain.text
    assert path in dict(made.parameters).values()
    assert f"{made.parameters[0][0]}={path}" in made.argv(("true",))
    assert not Reference(made).allows("network-outbound", remote="1.2.3.4:80")


def test_the_command_line() -> None:
    made = Profile("(version 1)", (("PATH_0", "/a b"),))
    assert made.argv(("echo", "-D")) == (
        "/usr/bin/sandbox-exec",
        "-p",
        "(version 1)",
        "-D",
        "PATH_0=/a b",
        "--",
        "echo",
        "-D",
    )
