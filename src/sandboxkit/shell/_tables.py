"""
The words bash itself gives a meaning to.
"""

from __future__ import annotations

__all__ = ["BUILTINS", "DECLARES", "RESERVED"]

RESERVED = frozenset(
    "! [[ ]] { } case coproc do done elif else esac fi for function if in select then time until while".split()
)
"""
Reserved words. Source: bash(1), "RESERVED WORDS", version 5.2.
"""

BUILTINS = frozenset(
    """
    . : alias bg bind break builtin caller cd command compgen complete compopt continue
    declare dirs disown enable eval exec exit export fc fg getopts hash help history jobs
    let local logout mapfile popd pushd read readarray readonly return set shift shopt
    source suspend times trap type typeset ulimit umask unalias unset wait
    """.split()
)
"""
Builtins without a program that does the same: only bash can run them. `[`, `echo`,
`false`, `kill`, `printf`, `pwd`, `test` and `true` are left out, because the programs
of these names run in their place. Source: bash(1), "SHELL BUILTIN COMMANDS", version 5.2.
"""

DECLARES = frozenset(("declare", "typeset", "local", "readonly", "export"))
"""
Builtins whose operands are assignments. Source: bash(1), "PARAMETERS", version 5.2.
"""
