"""
Secrets that a command uses and never sees, from the variables of this program.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sandboxkit.backends import SandboxRegistry
from sandboxkit.errors import SpecError
from sandboxkit.model import SecretInjection
from sandboxkit.secrets import SecretRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sandboxkit.model import SandboxSpec

__all__ = ["backends_for", "injections", "secrets_of"]


def injections(given: Sequence[str]) -> tuple[SecretInjection, ...]:
    """
    What `--inject NAME=HOST[:PORT][/PATH]` asks for, each time it was given.

    Raises:
        SpecError: One of them is no such text; what may be a secret is not repeated.
    """
    found, wrong = [], []
    for text in given:
        name, equals, to = text.partition("=")
        try:
            if not equals or not to:
                raise ValueError("write NAME=HOST[:PORT][/PATH], where NAME is the variable that holds the secret")
            found.append(SecretInjection(secret=name, to=to))
        except ValueError as exc:  # pydantic's is one
            wrong.append(f"--inject: {_said(exc)}")
    if wrong:
        raise SpecError(*wrong)
    return tuple(found)


def _said(exc: ValueError) -> str:
    from pydantic import ValidationError

    from sandboxkit.model import problems

    return "; ".join(map(str, problems(exc, SecretInjection))) if isinstance(exc, ValidationError) else str(exc)


def secrets_of(spec: SandboxSpec) -> SecretRegistry | None:
    """
    The values of what *spec* injects, each for the hosts it names there; None where it
    injects nothing.

    Raises:
        SpecError: A variable is not set, or holds nothing that can be a secret.
    """
    rows = spec.network.inject
    if not rows:
        return None
    hosts: dict[str, list[str]] = {}
    for row in rows:
        hosts.setdefault(row.secret, []).append(row.host)
    registry, wrong = SecretRegistry(), []
    for name, places in hosts.items():
        try:
            registry.add(name, os.environ.get(name, ""), hosts=places)
        except ValueError as exc:
            wrong.append(
                f"network.inject: {exc}"
                if name in os.environ
                else f"network.inject: the variable {name} is not set; it is to hold the secret"
            )
    if wrong:
        raise SpecError(*wrong)
    return registry


def backends_for(secrets: SecretRegistry | None) -> SandboxRegistry | None:
    """
    The backends that know *secrets*; None for those of the process.
    """
    return None if secrets is None else SandboxRegistry.default(secrets=secrets)
