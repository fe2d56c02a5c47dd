from sandboxkit import EgressPolicy, canonical_url

policy = EgressPolicy(
    allow_hosts=["https://api.example.com", "*.example.org"],
    rules=[{"action": "deny", "to": "api.example.com/admin", "reason": "not for agents"}],
)
for text in ("https://API.example.com./v1/x", "https://api.example.com/v1/../admin", "https://example.net/"):
    url = canonical_url(text)
    print(url, policy.decide(url))
assert policy.decide(canonical_url("https://api.example.com/v1/x")).allowed
assert not policy.decide(canonical_url("https://api.example.com/v1/../admin")).allowed
