"""
`sandboxkit doctor` and `sandboxkit backends`.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import anyio

from sandboxkit.backends import SandboxRegistry, default_registry
from sandboxkit.cli._exit import Exit
from sandboxkit.cli._machine import machine, open_secrets, own_code_inside
from sandboxkit.cli._output import enforcement_table, printable, say, table
from sandboxkit.errors import PluginError
from sandboxkit.model import Control, SandboxSpec

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from sandboxkit.backends import BackendStatus
    from sandboxkit.cli._report import Report

__all__ = ["backends", "doctor"]


def backends(options: argparse.Namespace, report: Report) -> int:
    """
    Prints one line for each backend, those of the allowed plug-ins too, which of them a default
    spec is run by, and what the other available ones lack for that. A plug-in that
    cannot be loaded is named with its reason and changes nothing for the others; it ends with
    1 then.
    """
    registry, problems = _with_plugins(options.allow)
    found = anyio.run(registry.list)
    if not report.is_json:
        say(_overview(found))
        for line in _taken(found):
            say(line)
        for problem in problems.values():
            say(f"\nnot loaded: {printable(problem)}")
    code = Exit.FOUND_WANTING if problems else Exit.DONE
    return report.done(code, code.status, {"backends": [status.to_dict() for status in found], "not_loaded": problems})


def _with_plugins(names: Sequence[str]) -> tuple[SandboxRegistry, dict[str, str]]:
    """
    The built-in backends and those of the plug-ins *names*; and why the others of them
    cannot be had.
    """
    registry, problems = SandboxRegistry.default(), {}
    for name in dict.fromkeys(names):
        try:
            registry.load_plugin(name)
        except PluginError as exc:
            problems[name] = str(exc)
    return registry, problems


def doctor(options: argparse.Namespace, report: Report) -> int:
    """
    Prints what the machine has and what each backend makes of it, with remedies. It ends
    with 0 where some backend keeps what a default spec requires and every file that was named
    could be looked at, else with 1: a program that can run only what asks for less should
    hear of it before it is in use.
    """
    registry = default_registry()
    registry.forget()  # whoever asks wants to know how it is now
    features, found = machine(), anyio.run(partial(registry.list, attack_listed=True))
    unseen, told = _looked_at(options.files)
    warnings = [*_warnings(found), *told, *unseen]
    chosen = next((status.name for status in found if status.available and not status.missing), None)
    code = Exit.FOUND_WANTING if chosen is None or unseen else Exit.DONE
    if not report.is_json:
        say(
            table(
                ("feature", "state", "remedy"), [(feature.name, feature.state, feature.remedy) for feature in features]
            )
        )
        say("\n" + _overview(found))
        for status in found:
            say(_details(status))
        for warning in warnings:
            say(f"\nwarning: {printable(warning)}")
        say("\n" + _verdict(found, chosen))
    fields = {"machine": [asdict(feature) for feature in features], "warnings": warnings, "default_backend": chosen}
    return report.done(code, code.status, {**fields, "backends": [status.to_dict() for status in found]})


def _looked_at(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """
    Which of the files at *paths* cannot be looked at, and what is wrong with the others.
    """
    unseen, told = list[str](), list[str]()
    for path in paths:
        try:
            told += filter(None, [open_secrets(path)])
        except OSError as exc:
            unseen.append(f"{path} cannot be looked at: {exc.strerror}; nothing is said about its secrets")
    return unseen, told


def _verdict(found: tuple[BackendStatus, ...], chosen: str | None) -> str:
    """
    Where a default spec runs, and why not in what comes before that; the last line says
    what can be done here.
    """
    available = [status for status in found if status.available]
    passed_over = found[: next((place for place, status in enumerate(found) if status.name == chosen), len(found))]
    lines = [f"a default spec does not run in {status.name}: {printable(_why_not(status))}" for status in passed_over]
    if chosen is not None:
        return "\n".join([*lines, f"a default spec runs in {chosen}: commands can be run in a box here"])
    return "\n".join([*lines, _rest(available)])


def _why_not(status: BackendStatus) -> str:
    if status.available:
        return "; ".join(status.missing)
    return f"{status.reason}; {status.remedy}"


def _rest(available: list[BackendStatus]) -> str:
    if not available:
        return "no backend is available, so nothing will be run here"
    best = available[0]
    needed = SandboxSpec().requirements()
    short = [str(name) for name, grade in needed.items() if best.enforcement and best.enforcement.grade(name) < grade]
    return f"commands can be run here only under a spec with allow_degraded = {short}, in {best.name}"


def _overview(found: tuple[BackendStatus, ...]) -> str:
    if not found:
        return "there is no backend for this platform"
    rows = [
        (status.name, str(status.priority), "yes" if status.available else "no", status.reason, status.remedy)
        for status in found
    ]
    return table(("backend", "priority", "available", "because", "remedy"), rows)


def _taken(found: tuple[BackendStatus, ...]) -> list[str]:
    """
    Which backend runs a spec that asks for nothing in particular, and why no other.
    """
    taken = next((status.name for status in found if status.available and not status.missing), "none")
    lacking = (status for status in found if status.available and status.missing)
    return [
        f"\na default spec is run by: {taken}",
        *(f"{status.name} lacks: {printable('; '.join(status.missing))}" for status in lacking),
    ]


def _details(status: BackendStatus) -> str:
    facts = [(name, _shown(value)) for name, value in status.facts.items()]
    parts = [f"\n{status.name}", table(("fact", "value"), facts)]
    if status.enforcement:
        parts += ["", enforcement_table(status.enforcement), "", printable(_listed(status))]
    if status.missing:
        parts += ["", *(f"missing: {printable(sentence)}" for sentence in status.missing)]
    return "\n".join(parts)


def _listed(status: BackendStatus) -> str:
    """
    What the attack on a box of listed hosts showed, which is made where such boxes are claimed.
    """
    told = next((found for found in status.verified if found.control is Control.NET_ALLOWLIST), None)
    if told is None:
        return f"{Control.NET_ALLOWLIST} was not attacked, because it is not claimed"
    return f"{Control.NET_ALLOWLIST} was attacked, {told.grade}: {told.reason}"


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _warnings(found: tuple[BackendStatus, ...]) -> list[str]:
    warnings = [f"{status.name}: {warning}" for status in found for warning in status.warnings]
    try:
        inside = own_code_inside(os.getcwd())
    except OSError:
        return [*warnings, "the working directory is gone"]
    return [
        *warnings,
        *(
            f"{path} is what this program runs from, and it lies in the working directory: a box keeps it read-only, "
            "but keep environments outside of what commands may write"
            for path in inside
        ),
    ]
