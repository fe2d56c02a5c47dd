"""
Tokens that are recognised by their shape alone, as a table with sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["SHAPES", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """
    One well-known form of a secret.

    Attributes:
        name: What it is called in the marker.
        pattern: Matches it. Bounded, without assertions that look outside the match,
            and without bytes of a marker: masking in pieces and masking twice rely on
            that.
        anchors: One of these stands in every match. Looked for first, because a
            substring search costs a hundredth of the pattern.
        longest: No match is longer, in bytes.
        source: Where the form is described.
        examples: Texts it matches.
        others: Texts it must not match.
    """

    name: str
    pattern: re.Pattern[bytes]
    anchors: tuple[bytes, ...]
    longest: int
    source: str
    examples: tuple[str, ...]
    others: tuple[str, ...] = ()


def _row(
    name: str,
    pattern: str,
    anchors: str,
    longest: int,
    source: str,
    *,
    examples: tuple[str, ...],
    others: tuple[str, ...] = (),
) -> Shape:
    return Shape(name, re.compile(pattern.encode()), tuple(anchors.encode().split()), longest, source, examples, others)


_A36 = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

SHAPES: tuple[Shape, ...] = (
    _row(
        "aws-access-key",
        r"A(?:KI|SI|BI|CC)A[A-Z0-9]{16}",
        "AKIA ASIA ABIA ACCA",
        20,
        "AWS IAM User Guide, IAM identifiers, unique ID prefixes",
        examples=("AKIA" + "IOSFODNN7EXAMPLE", "ASIA" + "Y34FZKBOKMUTVV7A"),
        others=("AKIA-not-a-key", "AKIAlowercaseletters"),
    ),
    _row(
        "github-token",
        r"gh[pousr]_[A-Za-z0-9]{36,251}+",
        "ghp_ gho_ ghu_ ghs_ ghr_",
        255,
        "GitHub Docs, About authentication to GitHub, token formats",
        examples=("ghp_" + _A36, "ghs_" + _A36),
        others=("ghp_short",),
    ),
    _row(
        "github-token",
        r"github_pat_[A-Za-z0-9_]{22,244}+",
        "github_pat_",
        255,
        "GitHub Docs, About authentication to GitHub, fine-grained personal access tokens",
        examples=("github_pat_" + "11ABCDEFG0aBcDeFgHiJkL_" + _A36,),
    ),
    _row(
        "gitlab-token",
        r"gl(?:pat|dt|rt|cbt|ptt|soat|ft)-[A-Za-z0-9_.-]{20,200}+",
        "glpat- gldt- glrt- glcbt- glptt- glsoat- glft-",
        208,
        "GitLab Docs, Token overview, token prefixes",
        examples=("glpat-" + "a1B2c3D4e5F6g7H8i9J0",),
        others=("glpat-short",),
    ),
    _row(
        "slack-token",
        r"xox[abeoprs]-[A-Za-z0-9-]{10,250}+",
        "xox",
        256,
        "Slack API, Token types",
        examples=("xoxb-" + "123456789012-abcdefGHIJKL",),
        others=("xox-nothing",),
    ),
    _row(
        "slack-token",
        r"xapp-[0-9]-[A-Za-z0-9-]{20,250}+",
        "xapp-",
        258,
        "Slack API, Token types, app-level tokens",
        examples=("xapp-" + "1-A0123456789-1234567890123-abcdef",),
    ),
    _row(
        "slack-webhook",
        r"hooks\.slack\.com/services/[A-Z0-9]{8,12}/[A-Z0-9]{8,12}/[A-Za-z0-9]{20,40}+",
        "hooks.slack.com/services/",
        100,
        "Slack API, Sending messages using incoming webhooks",
        examples=("https://hooks.slack.com/services/" + "T00000000/B00000000/a1B2c3D4e5F6g7H8i9J0k1L2",),
    ),
    _row(
        "google-api-key",
        r"AIza[A-Za-z0-9_-]{35}",
        "AIza",
        39,
        "Google Cloud, Manage API keys",
        examples=("AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",),
    ),
    _row(
        "google-oauth-token",
        r"ya29\.[A-Za-z0-9_.-]{20,2048}+",
        "ya29.",
        2053,
        "Google Identity, Using OAuth 2.0 to access Google APIs, token sizes",
        examples=("ya29." + "a0AfB_byC1d2E3f4G5h6I7j8",),
    ),
    _row(
        "stripe-key",
        r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,247}+",
        "k_live_ k_test_",
        255,
        "Stripe Docs, API keys",
        examples=("sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc", "rk_test_" + "4eC39HqLyjWDarjtT1zdp7dc"),
        others=("task_test_file",),
    ),
    _row(
        "model-provider-key",
        r"sk-(?:(?:proj|svcacct|admin|ant)-[A-Za-z0-9_-]{32,250}+|[A-Za-z0-9]{40,250}+)",
        "sk-",
        261,
        "OpenAI API reference, Authentication; Anthropic API reference, Authentication",
        examples=("sk-" + "proj-" + _A36, "sk-ant-" + "api03-" + _A36),
        others=("risk-assessment-of-all-the-many-things-that-may-go-wrong.md", "sk-small"),
    ),
    _row(
        "hugging-face-token",
        r"hf_[A-Za-z0-9]{30,64}+",
        "hf_",
        67,
        "Hugging Face Hub, User access tokens",
        examples=("hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",),
    ),
    _row(
        "npm-token",
        r"npm_[A-Za-z0-9]{36}",
        "npm_",
        40,
        "GitHub Blog 2021-09-23, Announcing npm's new access token format",
        examples=("npm_" + _A36,),
        others=("npm_config_registry",),
    ),
    _row(
        "pypi-token",
        r"pypi-AgE[A-Za-z0-9_-]{40,512}+",
        "pypi-AgE",
        520,
        "PyPI help, API tokens; warehouse, macaroons",
        examples=("pypi-" + "AgEIcHlwaS5vcmcCJGExYjJjM2Q0LWU1ZjYtNzg5MC1hYmNkLWVmMDEy",),
    ),
    _row(
        "sendgrid-key",
        r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
        "SG.",
        69,
        "SendGrid Docs, API keys",
        examples=("SG." + "a1B2c3D4e5F6g7H8i9J0k1" + "." + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V",),
    ),
    _row(
        "digitalocean-token",
        r"do[opr]_v1_[a-f0-9]{64}",
        "_v1_",
        71,
        "DigitalOcean Docs, Personal access tokens",
        examples=("dop_v1_" + "0123456789abcdef" * 4,),
    ),
    _row(
        "json-web-token",
        r"eyJ[A-Za-z0-9_-]{10,2048}+\.eyJ[A-Za-z0-9_-]{4,4096}+\.[A-Za-z0-9_-]{10,1024}+",
        "eyJ",
        7176,
        "RFC 7519 section 3.1, RFC 7515 section 7.1",
        examples=("eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92K27uhbUJU1p1rwW1gFWFOEj",),
        others=("eyJhbGciOiJIUzI1NiJ9",),
    ),
    _row(
        "private-key",
        r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[\s\\rn]{0,8}Proc-Type: 4,ENCRYPTED[\s\\rn]{1,8}DEK-Info: [A-Z0-9-]{1,40},[0-9A-Fa-f]{1,64})?"
        r"[A-Za-z0-9+/=\\\s]{0,8192}+(?:-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----)?",
        "PRIVATE",
        8500,
        "RFC 7468 sections 10 and 11, RFC 1421 section 4.6",
        examples=("-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\nabc=\n-----END RSA PRIVATE KEY-----",),
        others=("-----BEGIN PUBLIC KEY-----",),
    ),
    _row(
        "authorization",
        r"(?i:authorization)[\"']? ?: ?[\"']?(?i:basic|bearer|token|digest) {1,4}[A-Za-z0-9+/=._~-]{6,4096}+",
        "uthorization UTHORIZATION",
        4132,
        "RFC 9110 section 11.6.2",
        examples=("Authorization: Bearer abc.def-123", "authorization: basic dXNlcjpwYXNz"),
        others=("Authorization: required",),
    ),
    _row(
        "url-password",
        r"://[!-.0-9;-?A-~]{0,64}:[!-.0-?A-~]{1,256}+@",
        "://",
        325,
        "RFC 3986 section 3.2.1",
        examples=("postgres://app:hunter2@db.example:5432/x",),
        others=("https://example.com:8080/a", "https://user@example.com/"),
    ),
)
"""
What is masked even where nobody registered it.
"""
