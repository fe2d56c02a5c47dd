"""
Wildcards under which strangers can register names. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandboxkit.model import HostPattern

__all__ = ["SHARED_SUFFIXES", "too_broad"]

SHARED_SUFFIXES: frozenset[str] = frozenset(
    """
    amazonaws.com appspot.com azureedge.net azurefd.net azurewebsites.net blob.core.windows.net cloudapp.net
    cloudfront.net cloudfunctions.net deno.dev fastly.net firebaseapp.com fly.dev github.io githubusercontent.com
    gitlab.io googleapis.com googleusercontent.com herokuapp.com lhr.life loca.lt netlify.app ngrok.app ngrok.io
    ngrok-free.app onrender.com pages.dev pythonanywhere.com r2.dev railway.app repl.co replit.dev run.app
    s3.amazonaws.com storage.googleapis.com supabase.co surge.sh trycloudflare.com vercel.app web.app workers.dev
    nip.io sslip.io localtest.me lvh.me
    ac.uk co.in co.jp co.kr co.nz co.uk co.za com.ar com.au com.br com.cn com.hk com.mx com.sg com.tr com.tw
    edu.au gov.au gov.uk me.uk ne.jp net.au or.jp org.au org.br org.uk
    """.split()
)
"""
Suffixes under which anybody can have a name: well-known hosting services and registries
of two labels. It is a help for people who write rules, not a list to rely on.

Source: Public Suffix List, ICANN and private sections, 2026, the widely used of them.
"""


def too_broad(pattern: HostPattern) -> str | None:
    """
    Why a wildcard covers names of strangers, or None.
    """
    if pattern.labels == 0:
        return None
    if not pattern.host:
        return "it covers every host" if pattern.labels is None else "it covers every name of one label"
    if "." not in pattern.host:
        return f"it covers every name under .{pattern.host}; name the hosts"
    if pattern.host in SHARED_SUFFIXES:
        return f"anybody can have a name under {pattern.host}; name the hosts"
    return None
