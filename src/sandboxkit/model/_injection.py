"""
`SecretInjection`: one secret that a command uses and never sees. Text enters here.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from sandboxkit.model._described import Described
from sandboxkit.model._egress_rule import Destination, EgressRule, Method

__all__ = ["SecretInjection"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SENDABLE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_FIELD = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_ABOUT_THE_MESSAGE = frozenset(
    "host connection content-length transfer-encoding upgrade range te trailer expect accept-encoding".split()
)
_SHORTEST = 6


def _secret(name: str) -> str:
    if not _NAME.fullmatch(name):
        # Not shown: where name and value were swapped it is the secret.
        raise ValueError("a secret's name is a letter or '_' and then at most 63 letters, digits, '_', '.' or '-'")
    return name


def _one_host(text: str) -> str:
    if Destination.parse(f"https://{text.removeprefix('https://')}").pattern.labels != 0:
        raise ValueError(f"{text!r} must be one host; a wildcard would give the secret away")
    return text


def _header(text: str) -> str:
    name = text.lower()
    if not _FIELD.fullmatch(name) or name in _ABOUT_THE_MESSAGE:
        raise ValueError(f"{name!r} is no field for a secret")
    return name


def _stand_in(text: str) -> str:
    if text and (len(text) < _SHORTEST or not _SENDABLE.fullmatch(text)):
        raise ValueError(f"it needs at least {_SHORTEST} visible ASCII characters")
    return text


class SecretInjection(Described):
    """
    Where the value of a secret takes the place of its placeholder, outside of the box.

    The value itself is nowhere in it: the application gives it to the backend by name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret: Annotated[str, AfterValidator(_secret)]
    """The name of the secret."""
    to: Annotated[str, Field(max_length=1000), AfterValidator(_one_host)]
    """
    One exact host, with a port where it is not 443, and a path prefix of whole segments:
    `api.example.com/v1`. Always https.
    """
    methods: tuple[Method, ...] | None = None
    """The HTTP methods meant, or none given: all of them."""
    headers: tuple[Annotated[str, AfterValidator(_header)], ...] = ("authorization", "x-api-key", "private-token")
    """Request fields in which the placeholder is looked for, also inside `Basic` credentials."""
    placeholder: Annotated[str, Field(max_length=1000), AfterValidator(_stand_in)] = ""
    """
    What the box holds; by default the secret's name in angle brackets. Another one where a
    program checks what its keys look like.
    """
    variable: Annotated[str, Field(max_length=1000)] = ""
    """The variable in which the command finds the placeholder; by default the secret's name."""

    @field_validator("methods")
    @classmethod
    def _some_method(cls, methods: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if methods == ():
            raise ValueError("an empty list of methods matches nothing; leave it out to match all")
        return methods

    @model_validator(mode="after")
    def _named(self) -> SecretInjection:
        if not _VARIABLE.fullmatch(self.variable or self.secret):
            raise ValueError(f"variable: {self.variable or self.secret!r} is no variable name; give one")
        return self

    @property
    def rule(self) -> EgressRule:
        """
        The requests it is meant for.
        """
        return EgressRule(action="allow", to=f"https://{self.to.removeprefix('https://')}", methods=self.methods)

    @property
    def host(self) -> str:
        """
        The host, with its port.
        """
        pattern = self.rule.pattern
        shown = f"[{pattern.host}]" if ":" in pattern.host else pattern.host
        return f"{shown}:{pattern.port or 443}"

    def stands_in(self) -> tuple[str, str]:
        """
        The variable of the command, and the placeholder it holds.
        """
        return self.variable or self.secret, self.placeholder or f"<{self.secret}>"
