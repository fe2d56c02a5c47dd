"""
Programs that start another program named in their arguments, as a table.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandboxkit.model import Setting

__all__ = ["SHELLS", "STDIN_SHELLS", "WRAPPERS", "Wrapper"]


@dataclass(frozen=True, slots=True)
class Wrapper:
    """
    How the words of a wrapper are told from those of the command it starts.

    Attributes:
        flags: Letters of short options without a value.
        values: Letters of short options with one.
        optional: Letters of short options with one that can only be attached.
        names: Long options without a value.
        valued: Long options with one, attached or as the next word.
        operands: How many operands stand before the command.
        assigns: Whether `NAME=value` words may stand before the command.
        text: Options whose value is text for a shell; with them there is no command.
        joins: Whether the words of the command are joined to text for a shell.
        stops: Options with which nothing is started.
        directory: Options whose value is the directory it starts in.
        digits: Whether `-10` is an option too.
        setting: How the command then stands.
    """

    flags: str = ""
    values: str = ""
    optional: str = ""
    names: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    text: frozenset[str] = frozenset()
    joins: bool = False
    stops: frozenset[str] = frozenset(("--help", "--version"))
    directory: frozenset[str] = frozenset()
    digits: bool = False
    setting: Setting = Setting.NONE


def _wrapper(
    flags: str = "",
    values: str = "",
    names: str = "",
    valued: str = "",
    *,
    optional: str = "",
    operands: int = 0,
    assigns: bool = False,
    text: str = "",
    joins: bool = False,
    stops: str = "",
    directory: str = "",
    digits: bool = False,
    setting: Setting = Setting.NONE,
) -> Wrapper:
    def long(words: str) -> frozenset[str]:
        return frozenset(f"--{word}" for word in words.split())

    return Wrapper(
        flags=flags,
        values=values,
        optional=optional,
        names=long(names),
        valued=long(valued),
        operands=operands,
        assigns=assigns,
        text=frozenset(text.split()),
        joins=joins,
        stops=frozenset(("--help", "--version", *stops.split())),
        directory=frozenset(directory.split()),
        digits=digits,
        setting=setting,
    )


WRAPPERS: dict[str, Wrapper] = {
    # coreutils 9, util-linux 2.38, findutils 4.9, procps 4
    "env": _wrapper(
        "i0v",
        "uCa",
        "ignore-environment null debug list-signal-handling block-signal default-signal ignore-signal",
        "unset chdir argv0",
        assigns=True,
        directory="-C --chdir",
    ),
    "nice": _wrapper("", "n", "", "adjustment", digits=True),
    "ionice": _wrapper("t", "cn", "ignore", "class classdata", stops="-p --pid -P --pgid -u --uid"),
    "nohup": _wrapper(),
    "setsid": _wrapper("cfw", "", "ctty fork wait"),
    "stdbuf": _wrapper("", "ioe", "", "input output error"),
    "timeout": _wrapper("fpv", "ks", "foreground preserve-status verbose", "kill-after signal", operands=1),
    "chrt": _wrapper(
        "abdfioRrv",
        "TPD",
        "all-tasks batch deadline fifo idle other reset-on-fork rr verbose",
        "sched-runtime sched-period sched-deadline",
        operands=1,
        stops="-p --pid -m --max",
    ),
    "taskset": _wrapper("ac", "", "all-tasks cpu-list", operands=1, stops="-p --pid"),
    "setarch": _wrapper(
        "RBFILSTXZv3",
        "p",
        "addr-no-randomize fdpic-funcptrs mmap-page-zero addr-compat-layout read-implies-exec 32bit short-inode whole-seconds sticky-timeouts 3gb 4gb uname-2.6 verbose",
        "pid",
        operands=1,
    ),
    **dict.fromkeys(
        ("linux32", "linux64", "i386", "x86_64"),
        _wrapper("RBFILSTXZv3", "", "addr-no-randomize read-implies-exec 32bit 3gb 4gb uname-2.6 verbose"),
    ),
    "time": _wrapper("apvqhV", "fo", "append portability verbose quiet", "format output", assigns=True),
    "coproc": _wrapper(assigns=True, setting=Setting.SUBSHELL | Setting.BACKGROUND),
    "chroot": _wrapper("", "", "skip-chdir", "groups userspec", operands=1, setting=Setting.REMOTE),
    "unshare": _wrapper(
        "rcmuinpUCTf",
        "SGRwl",
        "map-root-user map-current-user map-auto mount uts ipc net pid user cgroup time fork keep-caps mount-proc kill-child",
        "setuid setgid root wd propagation setgroups map-user map-group map-users map-groups load-interp boottime monotonic",
        directory="-w --wd",
    ),
    "nsenter": _wrapper(
        "aFeZ",
        "tSGW",
        "all mount uts ipc net pid user cgroup time root wd no-fork preserve-credentials follow-context",
        "target setuid setgid wdns",
        optional="muinpUCTrw",
        setting=Setting.REMOTE,
    ),
    "setpriv": _wrapper(
        "d",
        "",
        "dump nnp no-new-privs clear-groups keep-groups init-groups reset-env",
        "ambient-caps inh-caps bounding-set ruid euid rgid egid reuid regid groups securebits pdeathsig selinux-label apparmor-profile",
    ),
    "flock": _wrapper(
        "sxeonuFv",
        "wE",
        "shared exclusive unlock nonblock nb close no-fork verbose",
        "wait timeout conflict-exit-code",
        operands=1,
        text="-c --command",
    ),
    "watch": _wrapper(
        "bcdegtxpwCr",
        "nqs",
        "beep color no-color differences errexit chgexit no-title exec precise no-wrap no-rerun",
        "interval equexit",
        joins=True,
    ),
    "script": _wrapper(
        "aefq",
        "IOBTmoE",
        "append return flush force quiet timing",
        "log-in log-out log-io log-timing logging-format output-limit echo",
        optional="t",
        operands=9,
        text="-c --command",
    ),
    "xargs": _wrapper(
        "0rtxop",
        "adEILnPs",
        "null no-run-if-empty verbose exit interactive open-tty show-limits eof max-lines replace",
        "arg-file delimiter max-args max-procs max-chars process-slot-var",
        optional="eil",
    ),
    # The shell's own
    "command": _wrapper("p", stops="-v -V"),
    "builtin": _wrapper(),
    "exec": _wrapper("cl", "a"),
    # Rights
    "sudo": _wrapper(
        "AbBEHiknNPSsK",
        "CDghpRrTtUu",
        "askpass background bell preserve-env set-home login non-interactive preserve-groups stdin shell reset-timestamp no-update",
        "close-from chdir group host prompt chroot role command-timeout type other-user user",
        assigns=True,
        directory="-D --chdir",
        stops="-l -v -V -e --list --validate --edit -K --remove-timestamp",
    ),
    "doas": _wrapper("Lns", "aCu"),
    "su": _wrapper(
        "flmpPh",
        "gGsw",
        "fast login preserve-environment pty",
        "group supp-group shell whitelist-environment",
        operands=9,
        text="-c --command --session-command",
    ),
    "runuser": _wrapper(
        "flmpP",
        "gGswu",
        "fast login preserve-environment pty",
        "group supp-group shell whitelist-environment user",
        text="-c --command --session-command",
    ),
    "pkexec": _wrapper("", "u", "disable-internal-agent keep-cwd", "user"),
    "gosu": _wrapper(operands=1),
    "su-exec": _wrapper(operands=1),
    "sg": _wrapper(operands=1, text="-c", joins=True),
    # Tracers, boxes, terminals
    "strace": _wrapper(
        "AcCdDfFhiknqrtTvVwxyYzZ",
        "abeEIoOpPsSuUX",
        "follow-forks summary summary-only output-separately no-abbrev relative-timestamps absolute-timestamps",
        "output trace string-limit env user attach",
    ),
    "ltrace": _wrapper("bcCfhiLrStTV", "aADeFlnopsuwx"),
    "unbuffer": _wrapper("p"),
    "fakeroot": _wrapper("uhv", "lfbsi", "unknown-is-real", "lib faked"),
    "catchsegv": _wrapper(),
    "tini": _wrapper("svwg", "pe"),
    "dumb-init": _wrapper("cv", "r", "single-child verbose", "rewrite"),
    "dbus-run-session": _wrapper("", "", "", "config-file dbus-daemon"),
    "systemd-run": _wrapper(
        "GPqrtdS",
        "pEHMu",
        "user system scope remain-after-exit no-block wait pty pipe quiet collect shell same-dir send-sighup slice-inherit",
        "unit property description slice uid gid nice working-directory setenv host machine on-active on-boot on-startup on-unit-active on-unit-inactive on-calendar service-type timer-property path-property socket-property",
        directory="--working-directory",
    ),
    "caffeinate": _wrapper("disum", "tw"),
    "proot": _wrapper("0S", "rbqwvkRi"),
    "entr": _wrapper("acdnprxz", text="-s"),
    "winpty": _wrapper(),
    "busybox": _wrapper(),
    "toybox": _wrapper(),
    # Other hosts and containers
    "ssh": _wrapper(
        "46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopQRSWwP", operands=1, joins=True, setting=Setting.REMOTE
    ),
    "parallel": _wrapper(
        "kqtuvX0mz",
        "jIaNndSP",
        "keep-order bar dry-run line-buffer ungroup group null progress eta tag verbose xargs onall nonall will-cite no-run-if-empty quote shuf linebuffer",
        "jobs max-args delay timeout joblog results colsep max-procs retries halt memfree load sshlogin arg-file delimiter replace",
        joins=True,
    ),
}
"""
Wrappers by name. An option that is not listed ends the reading of the words: what it
means is not guessed.
"""

SHELLS = frozenset("sh bash dash zsh ksh mksh oksh lksh posh yash fish ash rbash csh tcsh".split())
"""
Programs that read text of a shell's language.
"""

STDIN_SHELLS = frozenset(
    ("ssh", "sudo", "doas", "su", "runuser", "pkexec", "chroot", "unshare", "nsenter", "script", "systemd-run")
)
"""
Wrappers that start a shell where no command is given, which then reads standard input.
"""
