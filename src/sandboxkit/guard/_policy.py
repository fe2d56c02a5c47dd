"""
`EgressPolicy`: where connections may go. Text enters here.
"""

from __future__ import annotations

import ipaddress
import json
import os
import tomllib
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from sandboxkit.errors import PolicyError
from sandboxkit.guard._address import OWN, Address, AddressRules, Network, leads_to, unmapped
from sandboxkit.guard._breadth import too_broad
from sandboxkit.guard._index import RuleIndex
from sandboxkit.guard._paths import has_traversal, undone
from sandboxkit.guard._reserved import BLOCKED_PORTS, RESERVED_SUFFIXES
from sandboxkit.guard._verdict import Verdict
from sandboxkit.model import (
    Described,
    EgressRule,
    HostPattern,
    HostText,
    Port,
    canonical_host,
    is_literal,
    problems,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sandboxkit.guard._url import Url
    from sandboxkit.model import NetworkPolicy

__all__ = ["EgressPolicy", "checked_addresses"]

MAX_FILE = 1 << 20
"""Characters of the largest policy file that is read."""
_STRICTEST = ("deny", "ask", "allow")
_SHORTHAND = {"allow_hosts": "allow", "ask_hosts": "ask", "deny_hosts": "deny"}


def _name(text: str) -> str:
    host = canonical_host(text)
    if is_literal(host):
        raise ValueError(f"{text!r} is an address; permit_networks and rules are about addresses")
    return host


def _network(value: object) -> object:
    if isinstance(value, str) and "/" not in value:
        raise ValueError(f"{value!r} has no prefix length; write /32 or /128 for one address")
    return value


def _plain_address(address: Address) -> Address:
    if address.version == 6 and address.scope_id is not None:
        raise ValueError(f"{address} has a zone id; leave it out")
    return address


_TEXT = PlainSerializer(str, return_type=str)
_Network = Annotated[Network, BeforeValidator(_network), _TEXT]
_Address = Annotated[Address, AfterValidator(_plain_address), _TEXT]
_Name = Annotated[str, AfterValidator(_name)]
_PathPart = Annotated[str, Field(min_length=2, max_length=200)]
_DEFAULT_NAMES = tuple(row.suffix for row in RESERVED_SUFFIXES)
_DEFAULT_PORTS = tuple(sorted(BLOCKED_PORTS))


class EgressPolicy(Described):
    """
    Which destinations may be reached. It decides and does nothing: no name is resolved here.

    A destination passes every one of these checks or is refused: its name is not
    reserved, no rule denies it, a rule allows it or the default does, its port is not
    blocked, and *every* address its name has is public or permitted. An allowed name
    that leads inside is refused: that is what `permit_networks` is for.

    `allow_hosts`, `ask_hosts` and `deny_hosts` are short for `rules`. Where `allow_hosts`
    is given, the default is to deny, so an empty list allows nothing.

    Raises:
        PolicyError: Something in it is wrong; lists every problem.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[EgressRule, ...] = ()
    """All rules that match count; their order does not."""
    default: Literal["public", "deny"] = "public"
    """What no rule matches: `public` lets every public address be reached, `deny` nothing."""
    permit_hosts: tuple[HostText, ...] = ()
    """Names that are not refused for being reserved. Nothing else is lifted for them."""
    permit_networks: tuple[_Network, ...] = ()
    """
    Networks that are not refused for not being public. Metadata addresses and
    `own_addresses` stay refused, and so do reserved names and unlisted hosts.
    """
    own_addresses: tuple[_Address, ...] = ()
    """
    Addresses of this machine. They are refused although they may be public: what listens
    there trusts who comes from the machine itself. `sandboxkit.egress` refuses those of
    the interfaces as well.
    """
    nat64: bool = False
    """Whether this network reaches IPv4 through `64:ff9b::/96` (RFC 6052); otherwise that is refused."""
    reserved_suffixes: tuple[_Name, ...] = _DEFAULT_NAMES
    """Names that are refused with all below them. Names of one label are refused as well."""
    reserved_first_labels: tuple[_Name, ...] = ()
    """
    First labels that are refused on any name, such as `admin` or `vault`. Empty: public
    names are judged by where they lead, not by how they are spelled.
    """
    blocked_ports: tuple[Port, ...] = _DEFAULT_PORTS
    """Ports that are refused on every host."""
    within: tuple[EgressPolicy, ...] = ()
    """Further policies, each of which must allow a destination as well."""
    deny_path_traversal: bool = False
    """
    Whether a URL is refused in which a dot segment stands as it was written, escaped or
    not, in path or query. Off: dot segments are resolved, and a path never says where a
    request goes. It also refuses searches for `../`.
    """
    deny_paths: tuple[_PathPart, ...] = ()
    """
    Texts that no path may hold, such as `/etc/` or `/proc/`, once escapes are undone. Off:
    see `deny_path_traversal`. A tunnel hides paths, so these say nothing about it.
    """

    _sees_tunnels_only: bool = PrivateAttr(default=False)
    """
    Whether https is decided about as a tunnel into which nobody looks, although others look:
    lists that were written for that must not allow more because somebody else's do.
    """

    if not TYPE_CHECKING:  # type checkers take the signature from the fields

        def __init__(self, **fields: object) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as exc:
                raise PolicyError(*map(str, problems(exc, type(self))), source="an egress policy") from None

        __init__.__pydantic_base_init__ = True

    else:

        def __init__(
            self,
            *,
            rules: Iterable[EgressRule | Mapping[str, object]] = (),
            default: str = "public",
            allow_hosts: Iterable[str] | None = None,
            ask_hosts: Iterable[str] = (),
            deny_hosts: Iterable[str] = (),
            permit_hosts: Iterable[str] = (),
            permit_networks: Iterable[str | Network] = (),
            own_addresses: Iterable[str | Address] = (),
            nat64: bool = False,
            reserved_suffixes: Iterable[str] = (),
            reserved_first_labels: Iterable[str] = (),
            blocked_ports: Iterable[int] = (),
            within: Iterable[EgressPolicy] = (),
            deny_path_traversal: bool = False,
            deny_paths: Iterable[str] = (),
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        """
        The shorthand keys become rules.
        """
        if not isinstance(data, Mapping) or _SHORTHAND.keys().isdisjoint(data):
            return data
        fields = dict(data)
        rules = list(fields.pop("rules", ()))
        for key, action in _SHORTHAND.items():
            hosts = fields.pop(key, None)
            if key == "allow_hosts" and hosts is not None and fields.setdefault("default", "deny") != "deny":
                raise ValueError("allow_hosts lists what may be reached, so the default is deny; leave one out")
            if isinstance(hosts, str):
                raise ValueError(f"{key} is a list of hosts, not one text")
            rules += [{"action": action, "to": host} for host in hosts or ()]
        return {**fields, "rules": rules}

    @cached_property
    def _addresses(self) -> AddressRules:
        return AddressRules(permit_networks=self.permit_networks, own_addresses=self.own_addresses, nat64=self.nat64)

    @cached_property
    def _index(self) -> RuleIndex:
        return RuleIndex(self.rules)

    @cached_property
    def _permitted(self) -> tuple[HostPattern, ...]:
        return tuple(map(HostPattern.parse, self.permit_hosts))

    @cached_property
    def _suffixes(self) -> frozenset[str]:
        return frozenset(self.reserved_suffixes)

    @cached_property
    def _ports(self) -> frozenset[int]:
        return frozenset(self.blocked_ports)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> EgressPolicy:
        """
        The policy in the file at *path*: JSON where its name ends in `.json`, otherwise
        TOML, with the fields of this class and the short keys.

        Raises:
            PolicyError: The file cannot be read, or anything in it is wrong.
        """
        source = os.fspath(path)
        try:
            with open(source, encoding="utf-8") as file:
                text = file.read(MAX_FILE + 1)
        except (OSError, UnicodeError) as exc:
            raise PolicyError(f"it cannot be read: {exc}", source=source) from None
        if len(text) > MAX_FILE:
            raise PolicyError(f"it has more than {MAX_FILE} characters", source=source)
        try:
            data = json.loads(text) if source.endswith(".json") else tomllib.loads(text)
        except ValueError as exc:
            raise PolicyError(str(exc), source=source) from None
        if not isinstance(data, dict):
            raise PolicyError("it must be a table of keys", source=source)
        try:
            return cls(**data)
        except PolicyError as exc:
            raise PolicyError(*exc.problems, source=source) from None

    @classmethod
    def of_network(cls, network: NetworkPolicy) -> EgressPolicy:
        """
        The policy of a box whose spec has *network*, of mode `listed`: what its lists do
        not allow is denied.

        Raises:
            PolicyError: The lists are more than a policy holds.
        """
        return cls._of_lists(network, tuple(cls._of_lists(layer, (), network) for layer in network.within), network)

    @classmethod
    def _of_lists(cls, lists: NetworkPolicy, within: tuple[EgressPolicy, ...], whole: NetworkPolicy) -> EgressPolicy:
        named = lists.model_fields_set - {"mode", "within", "intercept", "inject"}
        given = {name: value for name in named if (value := getattr(lists, name)) is not None}
        # Without the lists nothing is allowed: a spec never lets through what it does not name.
        made = cls(default="deny", within=within, **given)
        made._sees_tunnels_only = whole.intercepts and not lists.intercept
        return made

    def decide(self, url: Url, *, method: str = "GET") -> Verdict:
        """
        What is said of a request before its name is resolved. What is not denied still
        needs `judge` for the addresses.
        """
        return self._with_within(self._decide(url, method), lambda policy: policy.decide(url, method=method))

    def _decide(self, url: Url, method: str) -> Verdict:
        if self._sees_tunnels_only and url.scheme == "https":
            return self._decide_tunnel(url.host, url.port, "https")
        reserved = self._reserved(url.host, url.scheme, url.port) or self._suspicious(url)
        if reserved is not None:
            return reserved
        found = self._index.find(url.host, scheme=url.scheme, port=url.port)
        return self._decided([rule for rule in found if rule.matches_request(url.path, method)], url.port)

    def decide_tunnel(self, host: str, port: int, *, scheme: str | None = None) -> Verdict:
        """
        What is said of a connection whose requests nobody will see, to a canonical *host*.

        A rule that allows by path or method allows no tunnel. One that denies or asks by
        path, method or scheme applies to every tunnel to its host: what it is about might
        go through.
        """
        own = self._decide_tunnel(host, port, scheme)
        return self._with_within(own, lambda policy: policy.decide_tunnel(host, port, scheme=scheme))

    def _decide_tunnel(self, host: str, port: int, scheme: str | None) -> Verdict:
        reserved = self._reserved(host, scheme, port)
        if reserved is not None:
            return reserved
        found = self._index.find(host, scheme=scheme, port=port, suspect=True)
        rules = [rule for rule in found if rule.action != "allow" or not rule.sees_inside]
        verdict = self._decided(rules, port)
        decisive = next((rule for rule in rules if rule.name == verdict.rule), None)
        if verdict.allowed or decisive is None or not decisive.sees_inside:
            return verdict
        return Verdict(
            verdict.action, f"{verdict.reason}; it looks at requests, which a tunnel hides", verdict.code, verdict.rule
        )

    def decide_inspected(self, host: str, port: int) -> Verdict:
        """
        What is said of a connection whose requests will each be decided about: whether
        there may be one by https that is not denied. It allows none of them.
        """
        own = self._decide_inspected(host, port)
        return self._with_within(own, lambda policy: policy.decide_inspected(host, port))

    def _decide_inspected(self, host: str, port: int) -> Verdict:
        if self._sees_tunnels_only:
            return self._decide_tunnel(host, port, "https")
        reserved = self._reserved(host, "https", port)
        if reserved is not None:
            return reserved
        found = self._index.find(host, scheme="https", port=port)
        return self._decided([rule for rule in found if rule.action != "deny" or not rule.sees_inside], port)

    def judge(self, addresses: Sequence[str], *, own: Collection[Address] = ()) -> Verdict:
        """
        The verdict on all the addresses a name has: one that is refused refuses them all,
        because whoever answers for the name would choose which is dialed.

        Args:
            addresses: As text, without brackets.
            own: More addresses of this machine than `own_addresses` has.
        """
        return self._with_within(self._judge(addresses, own), lambda policy: policy.judge(addresses, own=own))

    def _judge(self, addresses: Sequence[str], own: Collection[Address]) -> Verdict:
        for text in addresses:
            verdict = self._addresses.classify(text)
            if not verdict.allowed:
                return verdict
            if own and leads_to(ipaddress.ip_address(text), own):
                return OWN
        if not addresses:
            return Verdict.deny("the name has no address", code="dns")
        return Verdict.allow("every address is public or permitted")

    def _with_within(self, own: Verdict, said: Callable[[EgressPolicy], Verdict]) -> Verdict:
        """
        The strictest of this policy's *own* verdict and those of `within`.
        """
        if not self.within:
            return own
        return min((own, *map(said, self.within)), key=lambda verdict: _STRICTEST.index(verdict.action))

    def warnings(self) -> tuple[str, ...]:
        """
        What is probably broader than meant: wildcards over names that strangers can
        register under, and networks that hold everything.
        """
        broad = [
            f"{rule.name}: {why}" for rule in self.rules if rule.action == "allow" and (why := too_broad(rule.pattern))
        ]
        broad += [
            f"permit_hosts {text}: {why}" for text in self.permit_hosts if (why := too_broad(HostPattern.parse(text)))
        ]
        return (
            *broad,
            *(
                f"permit_networks {net}: it holds loopback and all private networks"
                for net in self.permit_networks
                if net.prefixlen == 0
            ),
            *(warning for policy in self.within for warning in policy.warnings()),
        )

    def _suspicious(self, url: Url) -> Verdict | None:
        """
        What the two settings about paths say; they cost nothing where they are not used.
        """
        if self.deny_path_traversal and has_traversal(url.raw):
            return Verdict.deny("the URL has a dot segment", code="url", setting="deny_path_traversal")
        if self.deny_paths:
            plain = undone(url.path)
            part = next((part for part in self.deny_paths if part in plain), None)
            if part is not None:
                return Verdict.deny(f"deny_paths has {part}", code="url", setting="deny_paths")
        return None

    def _reserved(self, host: str, scheme: str | None, port: int) -> Verdict | None:
        if is_literal(host) or any(known.matches(host, scheme=scheme, port=port) for known in self._permitted):
            return None
        first, dot, rest = host.partition(".")
        if not dot:
            return Verdict.deny("a name of one label is not public", code="name", setting="permit_hosts")
        while dot:
            if rest in self._suffixes:
                return Verdict.deny(f"{rest} is reserved, with all names below it", code="name", setting="permit_hosts")
            _, dot, rest = rest.partition(".")
        if host in self._suffixes:
            return Verdict.deny(f"{host} is reserved", code="name", setting="permit_hosts")
        if first in self.reserved_first_labels:
            return Verdict.deny(f"reserved_first_labels has {first}", code="name", setting="permit_hosts")
        return None

    def _decided(self, rules: Sequence[EgressRule], port: int) -> Verdict:
        """
        The strictest of *rules* that match, then the port, then the default.
        """
        rule = min(rules, key=lambda rule: _STRICTEST.index(rule.action), default=None)
        if rule is not None and rule.action == "deny":
            return Verdict("deny", _why(rule), "rule", rule.name)
        if rule is None and self.default == "deny":
            return Verdict.deny("no rule allows it", code="default", setting="rules")
        if port in self._ports:
            return Verdict.deny(f"port {port} is blocked on every host", code="port", setting="blocked_ports")
        if rule is None:
            return Verdict.allow("no rule is about it, and the default is public")
        return Verdict(rule.action, _why(rule), "allowed" if rule.action == "allow" else "ask", rule.name)


def _why(rule: EgressRule) -> str:
    says = {"deny": "denies", "ask": "asks about", "allow": "allows"}[rule.action]
    return f"a rule {says} {rule.to}" + (f": {rule.reason}" if rule.reason else "")


def checked_addresses(addresses: Iterable[str]) -> tuple[Address, ...]:
    """
    What to dial for *addresses* that were judged: each once, mapped ones as IPv4.

    Raises:
        ValueError: One of them is no address; `EgressPolicy.judge` refuses it.
    """
    return tuple(dict.fromkeys(unmapped(ipaddress.ip_address(text)) for text in addresses))
