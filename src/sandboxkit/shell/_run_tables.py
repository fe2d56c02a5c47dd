"""
Programs that do other work, and where commands stand among their words, as tables.
"""

from __future__ import annotations

import re

__all__ = [
    "CODE_OPTIONS",
    "RUNNERS",
    "RUN_OPTIONS",
    "RUN_WORDS",
    "TEXT_OPTIONS",
    "TEXT_RUNNERS",
    "VERBS",
    "VERB_RUNNERS",
]

_VIMS = tuple("vi vim nvim view rview rvim gvim mvim vimdiff nvimdiff vimx ex".split())

CODE_OPTIONS: dict[str, tuple[str, ...]] = {
    "python": ("-c",),
    "pypy": ("-c",),
    "ipython": ("-c",),
    "perl": ("-e", "-E"),
    "ruby": ("-e",),
    "node": ("-e", "--eval", "-p", "--print"),
    "nodejs": ("-e", "--eval", "-p", "--print"),
    "deno": ("eval",),
    "bun": ("-e", "--eval", "-p", "--print"),
    "php": ("-r", "-B", "-E", "-R", "--run", "--process-begin", "--process-code", "--process-end"),
    "lua": ("-e",),
    "luajit": ("-e",),
    "osascript": ("-e",),
    "tclsh": (),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), ("", "-e", "--source")),
    "rscript": ("-e",),
    "r": ("-e",),
    "julia": ("-e", "-E", "--eval", "--print"),
    "guile": ("-c",),
    "sbcl": ("--eval",),
    "ghc": ("-e",),
    "elixir": ("-e", "--eval"),
    "erl": ("-eval",),
    "groovy": ("-e",),
    "scala": ("-e",),
    "jshell": (),
    "octave": ("--eval",),
    "gnuplot": ("-e",),
    "expect": ("-c",),
    **dict.fromkeys(("ts-node", "tsx"), ("-e", "--eval", "-p", "--print")),
    **dict.fromkeys(("irb", "pry", "rake"), ("-e", "--exec", "--execute")),
    "rails": ("runner", "r"),
    "bpftrace": ("-e",),
    **dict.fromkeys(("mongo", "mongosh"), ("--eval",)),
    "redis-cli": ("eval", "EVAL"),
    **dict.fromkeys(("django-admin", "flask"), ("-c", "--command")),
    **dict.fromkeys(("emacs", "emacsclient"), ("-eval", "--eval", "-execute", "--execute", "-e")),
    **dict.fromkeys(("gdb", "lldb"), ("-ex", "--ex", "-iex", "--eval-command", "--init-eval-command", "-o", "-O")),
    **dict.fromkeys(_VIMS, ("-c", "--cmd")),
}
"""
Interpreters of other languages, and the options that are followed by code; an empty
option is the first operand. Where there is none, the code is read from the input.
Sources: the manual pages of Python 3.11, perl 5.36, Ruby 3.1, Node.js 20, PHP 8.2, Lua
5.4, gawk 5.2, R 4.2, Julia 1.9, Guile 3.0, SBCL 2.2, GHC 9.0, Elixir 1.14, Erlang 25,
Octave 7.3, gnuplot 5.4, Emacs 28, GDB 13, LLDB 14, Vim 9.0.
"""

RUN_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("tar", "bsdtar"),
        (
            "-I",
            "-F",
            "--use-compress-program",
            "--to-command",
            "--rsh-command",
            "--info-script",
            "--new-volume-script",
            "--checkpoint-action",
        ),
    ),
    "cpio": ("--rsh-command",),
    "split": ("--filter",),
    "sort": ("--compress-program",),
    "rg": ("--pre", "--hostname-bin"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "zip": ("-TT", "--unzip-command"),
    **dict.fromkeys(("bat", "batcat", "ag", "delta"), ("--pager",)),
    "man": ("-P", "-H", "--pager", "--html"),
    **dict.fromkeys(("scp", "sftp"), ("-S", "-D")),
    "mosh": ("--ssh",),
    **dict.fromkeys(("svn",), ("--diff-cmd", "--diff3-cmd", "--editor-cmd")),
    "tcpdump": ("-z",),
    "wget": ("--use-askpass",),
    **dict.fromkeys(("mysql", "mariadb"), ("--pager",)),
    **dict.fromkeys(("ansible",), ("-a", "--args")),
    "vagrant": ("-c", "--command"),
    "gcloud": ("--command",),
    "nodemon": ("-x", "--exec"),
    "go": ("-exec", "-toolexec", "-vettool"),
    "fzf": ("--preview",),
    "bpftrace": ("-c",),
    **dict.fromkeys(("inotify-hookable", "when-changed"), ("-c", "--on-modify-command")),
    "fish": ("-c", "--command", "-C", "--init-command"),
    **dict.fromkeys(("nu", "elvish", "xonsh"), ("-c", "--commands", "-e", "--execute")),
}
"""
Options of other programs whose value is a program, or text for a shell. Sources: the
manual pages of GNU tar 1.34, cpio 2.13, coreutils 9.1, ripgrep 13, rsync 3.2, zip 3.0,
bat 0.24, man-db 2.11, OpenSSH 9, mosh 1.4, Subversion 1.14, tcpdump 4.99, wget 1.21,
ansible-core 2.14, Vagrant 2.3, entr 5.3, fish 3.6.
"""

_SSH = re.compile(
    r"^(?:-[0-9A-Za-z]*o)?\s*(?:Proxy|Local|Remote|KnownHosts)Command\s*[= ]\s*(.*)|(?:^|\n)!([^\n]+)",
    re.DOTALL | re.IGNORECASE,
)
_BANG = re.compile(r"^!([^\n]+)", re.MULTILINE)

RUN_WORDS: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(
        ("sqlite3", "duckdb"),
        re.compile(
            r"\.(?:sh|she|shel|shell|sys|syst|syste|system)[ \t]+([^\n]+)|\.(?:once|output|excel|import)\b[^|\n]{0,200}\|([^\n'\"]+)"
        ),
    ),
    "psql": re.compile(
        r"\\!([^\n]+)|\b(?:from|to)\s+program\s+'((?:[^']|'')+)'|\\(?:o|g|w|copy)\b[^|\n]{0,200}\|([^\n]+)",
        re.IGNORECASE,
    ),
    **dict.fromkeys(("mysql", "mariadb"), re.compile(r"(?:\\!|(?:^|[;\n])[ \t]*(?:system|pager)\s)([^\n]+)")),
    **dict.fromkeys(
        ("make", "gmake", "bmake"), re.compile(r"\$\(shell ([^)\n]+)|^[A-Za-z_]\w*[:?+!]*=(?=(.+))", re.DOTALL)
    ),
    **dict.fromkeys(("ssh", "scp", "sftp"), _SSH),
    "ssh-copy-id": _SSH,
    "fzf": re.compile(r"(?:execute(?:-silent)?|become|reload|transform|preview)(?:\(([^()\n]*)|:([^\n]+))"),
    "cargo": re.compile(r"=\s*[\"']([^\"']+)"),
    "sshfs": re.compile(r"(?:ssh_command|sftp_server|ProxyCommand)=([^,]+)"),
    "strace": re.compile(r"^(?:-[A-Za-z]*o|--output=)?[|!](.+)", re.DOTALL),
    **dict.fromkeys(
        ("sed", "gsed"),
        re.compile(
            r"(?:^|[;{}\n\d$/!|,])[ \t]*e[ \t]+([^\n]+)|s(\W)(?:(?!\2)[^\n]){0,200}\2((?:(?!\2)[^\n]){0,200})\2[gpiImM0-9]*e"
        ),
    ),
    **dict.fromkeys(("less", "more", "most"), re.compile(r"^\+{1,2}(?:!|\|.)(.+)", re.DOTALL)),
    **dict.fromkeys(
        _VIMS,
        re.compile(
            r"(?:^|[+:|\n%$.\d]|\bsilent!?|\bexecute?|\bterm(?:inal)?)[ \t]*![ \t]*([^\n]+)|\bterm(?:inal)?\s+([^\n]+)"
        ),
    ),
    **dict.fromkeys(("ed", "red", "dc", "ftp", "lftp", "tftp", "telnet"), _BANG),
    **dict.fromkeys(("mail", "mailx", "mutt"), re.compile(r"^~(?:!|\|)([^\n]+)", re.MULTILINE)),
    "m4": re.compile(r"\be?syscmd\(`?([^)'\n]+)"),
    "gnuplot": re.compile(r"(?:^|[;\n])[ \t]*!([^\n]+)"),
    **dict.fromkeys(("tclsh", "expect", "wish"), re.compile(r"\b(?:exec|spawn|system)\s+([^\n;\]]+)")),
    **dict.fromkeys(
        ("gdb", "lldb"),
        re.compile(r"(?:^|[=\n])[ \t]*(?:(?:platform\s+)?shell|!|pipe[^|\n]{0,200}\||make)[ \t]*([^\n]+)"),
    ),
    "ipython": re.compile(r"(?:^|\n)[ \t]*[!%]{1,2}(?:sx|system)?[ \t]*([^\n]+)"),
}
"""
How text for a shell stands within words of other programs, or in the input they read. What
may be repeated is bounded, so that no word takes longer than it is long.
Sources: the manual pages of the programs; sed(1), "Commands"; less(1), "COMMANDS";
vim(1), ":help :!"; tclsh(1), exec(n); psql(1), "Meta-Commands".
"""

VERBS = frozenset(
    "run exec x dlx develop stat record trace shell start enter explore environment unshare attach new devenv ssh rsh -- -e -x -E".split()
)
"""
Words of a runner behind which the command stands.
"""

VERB_RUNNERS = frozenset(
    """
    poetry uv pipenv hatch pdm rye npm yarn pnpm bun bundle conda mamba micromamba pixi mise asdf rbenv pyenv nodenv direnv aws-vault
    op doppler nix nvm perf guix multipass machinectl flatpak alacritty konsole cmake meson tox buildah singularity apptainer
    incus limactl colima adb heroku ctr
    """.split()
)
"""
Runners that start something only with such a word.
"""

TEXT_RUNNERS = frozenset(
    "tmux screen byobu hyperfine sem watchexec salt pssh pdsh clush xterm autossh mosh zellij adb heroku fly flyctl".split()
)
"""
Runners of which any word may be text for a shell.
"""

TEXT_OPTIONS = ("-c", "--call", "--run", "--command", "-ex", "--eval-command", "--eval", "--script-shell", "-e")
"""
Options of runners whose value is text for a shell.
"""

RUNNERS = (
    VERB_RUNNERS
    | TEXT_RUNNERS
    | frozenset(
        """
    npx pnpx bunx dotenv valgrind rlwrap torsocks torify proxychains proxychains4 dbus-launch xvfb-run nocache chpst
    start-stop-daemon daemonize daemon cpulimit prlimit choom firejail bwrap gdb lldb nix-shell nix-env expect rr ld.so ld-linux.so
    ld-linux-x86-64.so ld-linux-aarch64.so numactl chronic ts tsp pueue runcon sandbox-exec sshpass retry chamber envdir setuidgid
    softlimit s6-setuidgid faketime fakechroot eatmydata libtool gnome-terminal wezterm dtach abduco distrobox toolbox
    flatpak-spawn lxc-attach lxc-execute kitty run0 sudo-rs please schroot arch-chroot systemd-inhibit systemd-cat systemd-nspawn
    rootlesskit cgexec s6-envdir with-contenv execlineb catatonit aa-exec pasta uftrace heaptrack multitime ssh-agent gpg-agent
    wsl just reflex launchctl
    """.split()
    )
)
"""
Programs that start another one somewhere among their words.
"""
