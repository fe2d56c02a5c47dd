"""
`SandboxSpec`: what a box may do. Text enters here, so these are pydantic models.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from sandboxkit.errors import SpecError
from sandboxkit.model._control import BASELINE, Control, Grade
from sandboxkit.model._described import Described
from sandboxkit.model._egress_rule import EgressRule, HostText, NetworkText, Port, To
from sandboxkit.model._injection import SecretInjection
from sandboxkit.model._paths import Access, access_of, strictest
from sandboxkit.model._real_path import real_path
from sandboxkit.model._spec_problems import problems
from sandboxkit.model._toml import toml_key, toml_value
from sandboxkit.model._walk import GLOB, has_wildcard

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = [
    "EnvironmentPolicy",
    "FilesystemPolicy",
    "Limits",
    "NetworkPolicy",
    "ProcessPolicy",
    "ProtectionSet",
    "SandboxSpec",
    "checked_timeout",
]

MIB = 1024 * 1024
_MOST_BYTES = 1 << 62
"""More than any machine has; the kernel's own numbers end a little further on."""
_Base = Literal["system", "tools"]
_Mode = Literal["none", "listed", "host"]
_BASES: tuple[_Base, ...] = ("system", "tools")
_MODES: tuple[_Mode, ...] = ("none", "listed", "host")

ProtectionSet = Literal["git", "shell-rc", "ide", "agent-config", "ci", "hook-managers"]
"""
A named group of files in a writable directory that other programs execute or obey.
"""
_ALL_SETS: frozenset[str] = frozenset(get_args(ProtectionSet))

_SORTED = PlainSerializer(sorted, when_used="json")
"""A set has another order in every process; a record of a spec must not."""


class _Model(Described):
    model_config = ConfigDict(frozen=True, extra="forbid")

    if not TYPE_CHECKING:  # type checkers take the signature from the fields

        def __init__(self, **fields: object) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as exc:
                raise SpecError(*map(str, problems(exc, type(self)))) from None

        # Pydantic's own mark: parts given as mappings are checked with the whole, so that every problem has its full key.
        __init__.__pydantic_base_init__ = True


_M = TypeVar("_M", bound=_Model)


def _merged(one: _M, other: _M, **fields: object) -> _M:
    """
    A model of *fields*, of which those that neither side names stay unnamed: they are
    the defaults on both sides.
    """
    named = one.model_fields_set | other.model_fields_set
    return type(one)(**{name: value for name, value in fields.items() if name in named})


_DRIVE = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def _absolute(path: str) -> str:
    if "\0" in path:
        raise ValueError("a path cannot hold a NUL byte")
    if path.startswith(GLOB):
        raise ValueError(
            f"{path!r} is a pattern, which only deny takes here; a spec file may have it, or name the paths"
        )
    if _DRIVE.match(path):
        raise ValueError(
            f"{path!r} is a path of Windows, and no backend shows one in a box; "
            "use SandboxSpec.isolated() and hand files over by box.files, or run in WSL 2"
        )
    if not path.startswith("/"):
        raise ValueError(
            f"{path!r} is a relative path; write it from the root, or use a preset or a spec file, which resolve it"
        )
    if posixpath.normpath(path).lstrip("/") != path.strip("/"):
        raise ValueError(f"{path!r} is not in normal form; write {posixpath.normpath(path)!r}")
    return "/" + path.strip("/")


def _protected(entry: str) -> str:
    """
    *entry* of `FilesystemPolicy.protect`, if it is one.
    """
    if entry in _ALL_SETS:
        return entry
    if "\0" in entry:
        raise ValueError("a path cannot hold a NUL byte")
    below = entry.removeprefix("./") if entry.startswith("./") else entry.removeprefix("/")
    if below == entry:
        from difflib import get_close_matches  # takes as long to import as all of the model

        close = next(iter(get_close_matches(entry, sorted(_ALL_SETS))), None)
        hint = f"did you mean {close!r}" if close else f"use one of {', '.join(sorted(_ALL_SETS))}"
        raise ValueError(f"{entry!r} is no protection set; {hint}; a path starts with ./ or /")
    if any(name in ("", ".", "..") for name in below.split("/")):
        raise ValueError(f"{entry!r} is not in normal form; leave out empty names, '.' and '..'")
    return entry


_Protected = Annotated[
    str,
    AfterValidator(_protected),
    WithJsonSchema({"anyOf": [{"enum": sorted(_ALL_SETS)}, {"type": "string", "pattern": "^[.]?/[^/]"}]}),
]
_HostPath = Annotated[str, AfterValidator(_absolute)]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?|\*")


def _unique(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(set(values)))


def _denied(entry: str) -> str:
    if not entry.startswith(GLOB):
        return _absolute(entry)
    pattern = _absolute(entry.removeprefix(GLOB))
    if not has_wildcard(pattern):
        raise ValueError(f"{entry!r} has none of *, ? and [; name the path itself, without {GLOB!r}")
    return GLOB + pattern


_HostPaths = Annotated[tuple[_HostPath, ...], AfterValidator(_unique)]
_DeniedPaths = Annotated[tuple[Annotated[str, AfterValidator(_denied)], ...], AfterValidator(_unique)]


class FilesystemPolicy(_Model):
    """
    Which files of the host a box sees. Paths are host paths, absolute and real.

    The deepest named path decides, whatever the order: a denied directory inside a
    writable one stays denied, and a readable file inside that is readable again.
    /run, /tmp and /var/tmp are the box's own and start empty, unless one of them is
    itself named; what is named inside them is there.
    Naming a path twice gives the stricter of both, except that `write` includes `read`.
    """

    base: _Base = "tools"
    """
    What is readable without being named: `system` (the operating system's own
    directories) or `tools` (also the directories on PATH and the known layouts of
    tools below the home, never the home itself).
    """
    read: _HostPaths = ()
    """Files and directories that may also be read."""
    write: _HostPaths = ()
    """Files and directories that may be read and written. They must exist."""
    deny: _DeniedPaths = ()
    """
    Files and directories that answer EACCES. A path that does not exist when the
    box starts cannot be held back: it is graded and checked after the run.
    `glob:/path` is a pattern, with `*`, `?` and `[…]` within one name and `**` for any
    number of directories: what it matches when a command starts is denied with all in
    it, whatever is named deeper. What it matches only later is not covered.
    """
    protect: Annotated[frozenset[_Protected], _SORTED] = _ALL_SETS
    """
    What stays read-only inside writable directories: names of protection sets (`git` is
    always on), `./path` in every writable directory, or an absolute path. In a path `*`,
    `?` and `[…]` match within one name, and `**` any number of directories; what a
    pattern matches only after the box was opened is not covered.
    """
    tmp_bytes: int = Field(default=1024 * MIB, ge=MIB, le=_MOST_BYTES)
    """
    Size of the private /tmp, in bytes; /dev/shm and the empty home get as much each.
    For a root caller they also hold at most one file for every 4096 bytes; for others the
    kernel's own bound counts, because bwrap cannot set one.
    """
    allow_host_interpreter_writes: bool = False
    """
    Lets a box write the interpreter, packages and programs this library itself runs
    from, when they lie in a writable directory. What it writes there runs
    unconfined the next time; the result says so.
    """

    @field_validator("protect", mode="after")
    @classmethod
    def _git_always(cls, value: frozenset[str]) -> frozenset[str]:
        return value | {"git"}

    def tree(self) -> dict[str, Access]:
        """
        The named paths with their access, without the patterns of `deny`.
        """
        tree = dict.fromkeys(self.read, Access.READ)
        tree.update(dict.fromkeys(self.write, Access.WRITE))
        tree.update(dict.fromkeys((path for path in self.deny if path.startswith("/")), Access.DENY))
        return tree

    def denied_patterns(self) -> tuple[str, ...]:
        """
        The patterns of `deny`, as absolute paths with wildcards.
        """
        return tuple(entry.removeprefix(GLOB) for entry in self.deny if entry.startswith(GLOB))

    def tighten(self, other: FilesystemPolicy) -> FilesystemPolicy:
        """
        At every path the lesser of what both allow.
        """
        tree = strictest(self.tree(), other.tree())
        return _merged(
            self,
            other,
            base=_BASES[min(_BASES.index(self.base), _BASES.index(other.base))],
            read=_with(tree, Access.READ),
            write=_with(tree, Access.WRITE),
            deny=(
                *_with(tree, Access.DENY),
                *(GLOB + pattern for side in (self, other) for pattern in side.denied_patterns()),
            ),
            protect=self.protect | other.protect,
            tmp_bytes=min(self.tmp_bytes, other.tmp_bytes),
            allow_host_interpreter_writes=self.allow_host_interpreter_writes and other.allow_host_interpreter_writes,
        )


def _with(tree: Mapping[str, Access], access: Access) -> tuple[str, ...]:
    return tuple(sorted(path for path, found in tree.items() if found is access))


_Row = TypeVar("_Row", EgressRule, SecretInjection)


def _in_order(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
    return tuple(sorted(dict.fromkeys(rows), key=lambda row: row.model_dump_json()))


def _one_placeholder_each(rows: tuple[SecretInjection, ...]) -> tuple[SecretInjection, ...]:
    named: dict[str, str] = {}
    for variable, placeholder in (row.stands_in() for row in rows):
        if named.setdefault(variable, placeholder) != placeholder:
            raise ValueError(f"the variable {variable} would hold two placeholders; give one of them another variable")
    return rows


_Destinations = Annotated[tuple[To, ...], AfterValidator(_unique)]


class NetworkPolicy(_Model):
    """
    What a box may reach. Its own loopback always works.

    Naming any list makes the mode `listed`: everything goes through a proxy outside the
    box, which lets through what the lists allow and nothing else. What no rule allows is
    refused, so an empty `allow_hosts` allows nothing; deny beats ask, and ask beats
    allow. The lists are those of `EgressPolicy`, with the same meaning. It holds for
    programs that use a proxy when they are told to; others reach nothing.

    What an allowed host does with what it is sent is beyond it, and so, without
    `intercept`, are hosts that hide behind an allowed one on the same server.
    """

    mode: _Mode = "none"
    """
    `none`: nothing outside the box. `listed`: what the lists below allow. `host`: the
    host's network, unfiltered.
    """
    allow_hosts: _Destinations = ()
    """
    What may be reached, as `[http://|https://]host[:port][/path]`; `*.` in front is one
    label more, `**.` any number.
    """
    ask_hosts: _Destinations = ()
    """What is asked about while the connection waits; without an approver it is refused."""
    deny_hosts: _Destinations = ()
    """What is refused whatever the other lists say."""
    rules: Annotated[tuple[EgressRule, ...], AfterValidator(_in_order)] = ()
    """Rules with methods, ids and reasons, beside the lists."""
    permit_hosts: Annotated[tuple[HostText, ...], AfterValidator(_unique)] = ()
    """Names that are not refused for being reserved, such as `localhost` or `git.internal`."""
    permit_networks: Annotated[tuple[NetworkText, ...], AfterValidator(_unique)] = ()
    """
    Networks that are not refused for not being public. By itself this allows no host.
    """
    blocked_ports: Annotated[tuple[Port, ...], AfterValidator(_unique)] | None = None
    """Ports that are refused on every host; where it is left out, those of `EgressPolicy`."""
    intercept: bool = False
    """
    Whether the proxy looks into TLS, so that rules about methods and paths hold for https,
    too: it stands in for each host by an authority of its own, which only this box trusts,
    and verifies the real one. Inside is HTTP/1.1; programs that pin certificates refuse it.
    """
    inject: Annotated[
        tuple[SecretInjection, ...], AfterValidator(_in_order), AfterValidator(_one_placeholder_each)
    ] = ()
    """
    Secrets the command uses and never sees: it holds a placeholder, and the proxy puts the
    value in for the requests that are meant, and masks it in what comes back. Such a list
    switches `intercept` on. By itself it allows no host.
    """
    within: tuple[NetworkPolicy, ...] = ()
    """
    Further lists, each of which must allow a destination as well: what `tighten` makes of
    two that differ.
    """

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, data: Any) -> Any:
        """
        Lists without a mode mean `listed`.
        """
        if not isinstance(data, Mapping) or _LISTS.isdisjoint(data):
            return data
        if (mode := data.get("mode", "listed")) in ("none", "host"):
            named = ", ".join(sorted(_LISTS & data.keys()))
            raise ValueError(f"{named}: mode {mode!r} has no lists; leave the mode out, or the lists")
        meant = {"mode": "listed"} | ({"intercept": True} if data.get("inject") and not data.get("within") else {})
        return {**meant, **data}

    @field_validator("within")
    @classmethod
    def _flat(cls, value: tuple[NetworkPolicy, ...]) -> tuple[NetworkPolicy, ...]:
        if any(layer.mode != "listed" or layer.within or layer.inject for layer in value):
            raise ValueError("each of them has lists, and no mode but 'listed' and no 'within' or 'inject' of its own")
        return value

    @model_validator(mode="after")
    def _seen(self) -> NetworkPolicy:
        if self.inject and not self.intercepts:
            raise ValueError("inject: a secret is put in where the proxy looks into TLS; leave out intercept=false")
        return self

    @property
    def intercepts(self) -> bool:
        """
        Whether the proxy looks into TLS for any of the lists.
        """
        return self.intercept or any(layer.intercept for layer in self.within)

    def tighten(self, other: NetworkPolicy) -> NetworkPolicy:
        """
        Only what both allow. A secret goes where both say so in the same words.
        """
        mode = _MODES[min(_MODES.index(self.mode), _MODES.index(other.mode))]
        if mode != "listed":
            return _merged(self, other, mode=mode)
        layers = {layer.model_dump_json(exclude_defaults=True): layer for layer in (*self._layers(), *other._layers())}
        first, *rest = (layers[text] for text in sorted(layers))
        shared = tuple(row for row in self.inject if row in other.inject)
        more = {name: rows for name, rows in (("within", tuple(rest)), ("inject", shared)) if rows}
        return first.model_copy(update=more) if more else first

    def _layers(self) -> tuple[NetworkPolicy, ...]:
        """
        The lists, each by itself and without secrets; none where there are none.
        """
        if self.mode != "listed":
            return ()
        fields = {name: field for name, field in NetworkPolicy.model_fields.items() if name not in _WHOLE}
        own = {name: getattr(self, name) for name, field in fields.items() if getattr(self, name) != field.default}
        return (NetworkPolicy(mode="listed", **own), *self.within)


_LISTS = frozenset(NetworkPolicy.model_fields) - {"mode"}
_WHOLE = frozenset({"mode", "within", "inject"})
"""What is said of the whole, not of one of its lists."""


_Positive = Annotated[float, Field(gt=0, le=365 * 86400, allow_inf_nan=False)]


class Limits(_Model):
    """
    Bounds on a run. None is no bound. A limit that is named must be enforced for
    the whole box, unless `allow_degraded` lists its control; one that is left to
    its default may be held less strictly, and the result says how.
    """

    wall: _Positive | None = 600.0
    """Seconds from start to end."""
    cpu: _Positive | None = None
    """Seconds of processor time."""
    memory_bytes: Annotated[int, Field(ge=32 * MIB, le=_MOST_BYTES)] | None = 4096 * MIB
    """Private memory. At least 32 MiB: below that not even the launcher fits."""
    processes: Annotated[int, Field(ge=1, le=1_000_000)] | None = 512
    """Processes and threads at one time."""
    file_size_bytes: Annotated[int, Field(ge=0, le=_MOST_BYTES)] | None = 8192 * MIB
    """Size of any one file written."""
    open_files: Annotated[int, Field(ge=16, le=1_000_000)] = 1024
    """Open file descriptors of one process."""
    max_output_bytes: Annotated[int, Field(ge=0, le=_MOST_BYTES)] = 16 * MIB
    """
    Bytes kept of each of stdout and stderr. More is read and dropped; past
    16 times as much the run is ended.
    """

    def tighten(self, other: Limits) -> Limits:
        """
        The smaller of each. What either side named counts as named.
        """
        named = self.model_fields_set | other.model_fields_set
        values: dict[str, Any] = {}
        for name in named:
            pair = [value for value in (getattr(self, name), getattr(other, name)) if value is not None]
            values[name] = min(pair) if pair else None
        return Limits(**values)


_LIMIT_CONTROLS: Mapping[str, Control] = {
    "wall": Control.LIMITS_WALL,
    "cpu": Control.LIMITS_CPU,
    "memory_bytes": Control.LIMITS_MEMORY,
    "processes": Control.LIMITS_PROCESSES,
    "file_size_bytes": Control.LIMITS_FILE_SIZE,
    "max_output_bytes": Control.LIMITS_OUTPUT,
}

_DEFAULT_INHERIT = ("CI", "HOME", "LANG", "LC_*", "NODE_OPTIONS", "PATH", "TERM", "TZ")


def _pattern(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} is no variable name; a name may end in * and hold letters, digits and _")
    return name


def _covers(pattern: str, other: str) -> bool:
    return other.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == other


def _fewest(patterns: Iterable[str]) -> tuple[str, ...]:
    names = sorted(set(patterns))
    return tuple(name for name in names if not any(other != name and _covers(other, name) for other in names))


class EnvironmentPolicy(_Model):
    """
    Which variables the command gets. Nothing else of the host's environment enters.
    """

    inherit: Annotated[tuple[Annotated[str, AfterValidator(_pattern)], ...], AfterValidator(_fewest)] = _DEFAULT_INHERIT
    """Names taken from the application's environment; one may end in `*`."""
    set: Mapping[str, str] = Field(default_factory=dict)
    """Variables given outright."""

    @field_validator("set", mode="after")
    @classmethod
    def _no_nul(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for name, text in value.items():
            if not name or "=" in name or "\0" in name + text:
                raise ValueError(f"variable {name!r}: a name cannot be empty or hold '=', and neither part a NUL byte")
        return dict(sorted(value.items()))

    def inherits(self, name: str) -> bool:
        """
        Whether the variable *name* is passed on.
        """
        return any(_covers(pattern, name) for pattern in self.inherit)

    def apply(self, environ: Mapping[str, str]) -> dict[str, str]:
        """
        The whole environment of a command whose application has *environ*.
        """
        exact = {pattern for pattern in self.inherit if not pattern.endswith("*")}
        begun = tuple(pattern[:-1] for pattern in self.inherit if pattern.endswith("*"))
        passed = {name: text for name, text in environ.items() if name in exact or name.startswith(begun)}
        return {**passed, **self.set}

    def tighten(self, other: EnvironmentPolicy) -> EnvironmentPolicy:
        """
        Only what both pass on, and only what both set to the same value.
        """
        shared = (narrow for one in self.inherit for two in other.inherit for narrow in _narrower(one, two))
        both = {name: text for name, text in self.set.items() if other.set.get(name) == text}
        return _merged(self, other, inherit=tuple(shared), set=both)


def _narrower(one: str, two: str) -> tuple[str, ...]:
    if _covers(one, two):
        return (two,)
    return (one,) if _covers(two, one) else ()


class ProcessPolicy(_Model):
    """
    What the command's processes may do with each other and the kernel.
    """

    allow_nested_userns: bool = False
    """User namespaces inside, for example for a browser's own sandbox."""
    allow_ptrace: bool = True
    """Debuggers among the box's own processes. Outside processes are never visible."""
    tty: bool = False
    """Terminal devices handed in by the caller stay usable as terminals."""

    def tighten(self, other: ProcessPolicy) -> ProcessPolicy:
        """
        Only what both allow.
        """
        return _merged(
            self,
            other,
            allow_nested_userns=self.allow_nested_userns and other.allow_nested_userns,
            allow_ptrace=self.allow_ptrace and other.allow_ptrace,
            tty=self.tty and other.tty,
        )


def _toml_lines(fields: Mapping[str, object], before: str) -> Iterator[str]:
    for name, value in fields.items():
        key = f"{before}{toml_key(name)}"
        if isinstance(value, Mapping) and not before:
            yield from _toml_lines(value, f"{key}.")
            continue
        try:
            yield f"{key} = {toml_value(value, key)}"
        except ValueError as exc:
            raise SpecError(f"{exc}; give it as JSON") from None


def _grade(value: object) -> object:
    return value if isinstance(value, Grade) else Grade.from_name(str(value))


_GradeField = Annotated[
    Grade,
    BeforeValidator(_grade),
    PlainSerializer(str, return_type=str, when_used="json"),
]


class SandboxSpec(_Model):
    """
    What a box may do. A backend that cannot keep it refuses it.

    Presets (`read_only`, `workspace_write`, `isolated`) resolve paths against the
    working directory; raw fields take absolute, real paths only. A spec can be made
    stricter (`tighten`) and never looser.
    """

    filesystem: FilesystemPolicy = FilesystemPolicy()
    network: NetworkPolicy = NetworkPolicy()
    limits: Limits = Limits()
    environment: EnvironmentPolicy = EnvironmentPolicy()
    process: ProcessPolicy = ProcessPolicy()
    require: Mapping[Control, _GradeField] = Field(default_factory=dict)
    """Controls that must hold at least this well, beyond the baseline."""
    allow_degraded: Annotated[frozenset[Control], _SORTED] = frozenset()
    """Controls that may hold less well than required. What was enforced is reported."""

    @field_validator("require", mode="after")
    @classmethod
    def _sorted(cls, value: Mapping[Control, Grade]) -> Mapping[Control, Grade]:
        return dict(sorted(value.items()))

    @classmethod
    def read_only(cls, *roots: str | os.PathLike[str], **fields: Any) -> SandboxSpec:
        """
        Reads *roots* (default: the working directory), writes nothing of the host,
        no network.
        """
        return cls(filesystem=FilesystemPolicy(read=_resolved(roots or (".",))), **fields)

    @classmethod
    def workspace_write(cls, *roots: str | os.PathLike[str], **fields: Any) -> SandboxSpec:
        """
        Reads and writes *roots* (default: the working directory), no network.
        """
        return cls(filesystem=FilesystemPolicy(write=_resolved(roots or (".",))), **fields)

    @classmethod
    def isolated(cls, **fields: Any) -> SandboxSpec:
        """
        Sees nothing of the host but the operating system's own files, no network.
        """
        return cls(filesystem=FilesystemPolicy(base="system"), **fields)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> SandboxSpec:
        """
        The spec that a TOML or JSON file describes, by its suffix.

        Its keys are the fields of this class. Paths may be relative to the file's
        directory or start with `~`; symbolic links are followed now. A name in
        `limits` counts as named, as it does in a call.

        Raises:
            SpecError: The file cannot be read, or something in it is wrong. Every
                problem is listed, with its key and line.
        """
        from sandboxkit.model._spec_file import spec_from_file

        return spec_from_file(cls, path)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, base: str | os.PathLike[str] | None = None) -> SandboxSpec:
        """
        The spec that nested mappings describe, as `model_dump(mode="json")` gives them.

        Args:
            data: The fields of this class.
            base: The directory relative paths start from, with `~` and symbolic links
                as in `from_file`; None takes absolute, real paths only.

        Raises:
            SpecError: Something in it is wrong. Every problem is listed with its key.
        """
        from sandboxkit.model._spec_file import spec_from_dict

        return spec_from_dict(cls, data, base)

    def to_toml(self) -> str:
        """
        The text of a TOML file that `from_file` takes back: a line for each field that was
        given, as `filesystem.read = ["/srv"]`.

        Raises:
            SpecError: A limit is lifted with None, which TOML cannot say.
        """
        return "".join(f"{line}\n" for line in _toml_lines(self.model_dump(mode="json", exclude_unset=True), ""))

    def requirements(self) -> dict[Control, Grade]:
        """
        What a backend must enforce for this spec, `allow_degraded` taken out.
        """
        needed = dict(BASELINE)
        if self.network.mode == "none":
            needed[Control.NET_NONE] = Grade.ENFORCED
        if self.network.mode == "listed":
            needed[Control.NET_ALLOWLIST] = Grade.ENFORCED
        if self.network.intercepts:
            needed[Control.NET_INTERCEPT] = Grade.ENFORCED
        if self.process.allow_nested_userns:
            del needed[Control.PROCESS_NESTED_USERNS]
        for name in self.limits.model_fields_set & _LIMIT_CONTROLS.keys():
            if getattr(self.limits, name) is not None:
                needed[_LIMIT_CONTROLS[name]] = Grade.ENFORCED
        for control, grade in self.require.items():
            needed[control] = max(grade, needed.get(control, Grade.ABSENT))
        return {control: grade for control, grade in needed.items() if control not in self.allow_degraded}

    def tighten(self, other: SandboxSpec) -> SandboxSpec:
        """
        The spec that allows only what both allow. Commutative and idempotent.
        """
        controls = self.require.keys() | other.require.keys()
        return _merged(
            self,
            other,
            filesystem=self.filesystem.tighten(other.filesystem),
            network=self.network.tighten(other.network),
            limits=self.limits.tighten(other.limits),
            environment=self.environment.tighten(other.environment),
            process=self.process.tighten(other.process),
            require={c: max(self.require.get(c, Grade.ABSENT), other.require.get(c, Grade.ABSENT)) for c in controls},
            allow_degraded=(self.allow_degraded & other.allow_degraded) - self._lost(other) - other._lost(self),
        )

    def _lost(self, other: SandboxSpec) -> frozenset[Control]:
        """
        What may not be degraded any more where *other* switches off a network of which
        this spec lets only listed hosts be reached: less than that was never allowed.
        """
        switched_off = self.network.mode == "listed" and other.network.mode == "none"
        return frozenset(
            {Control.NET_NONE} if switched_off and Control.NET_ALLOWLIST not in self.allow_degraded else ()
        )

    def starting_places(self, cwd: str, home: str) -> tuple[str, ...]:
        """
        Where a command starts whose caller names no directory, best first: in *cwd*, the
        application's, if the spec names it; else in what it names; else in *home*. The
        first that is a directory counts.
        """
        tree = self.filesystem.tree()
        here = (cwd,) if access_of(cwd, tree) >= Access.READ else ()
        named = (*self.filesystem.write, *self.filesystem.read)
        return (*here, *(path for path in named if tree[path] >= Access.READ), home)

    def timeout(self, asked: float | None) -> float | None:
        """
        The smaller of *asked* and `limits.wall`, in seconds; None where neither bounds.

        Raises:
            SpecError: *asked* is no positive number of seconds.
        """
        bounds = [bound for bound in (checked_timeout(asked), self.limits.wall) if bound is not None]
        return min(bounds, default=None)


def checked_timeout(timeout: object) -> float | None:
    """
    *timeout* in seconds; None is no deadline.

    Raises:
        SpecError: It is no positive number of seconds. One that is no number at all compares
            as neither smaller nor larger, and would lift the other bound.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise SpecError(
            f"timeout: {timeout!r} is no positive number of seconds; leave it out for no deadline of its own"
        )
    return float(min(timeout, 1e300))  # an int may be larger than any float


def _resolved(paths: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    real, wrong = [], []
    for path in paths:
        try:
            real.append(real_path(path))
        except ValueError as exc:
            wrong.append(str(exc))
    if wrong:
        raise SpecError(*wrong)
    return tuple(real)
