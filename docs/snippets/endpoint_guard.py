from sandboxkit import EgressDeniedError, EndpointGuard

endpoints = EndpointGuard(["api.example.com"])
print(endpoints.check("https://api.example.com/usage"))
try:
    endpoints.check("https://api.example.com.evil.example/usage")
except EgressDeniedError as exc:
    print(exc)
