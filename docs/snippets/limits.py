import sandboxkit as sk

result = sk.sync.run(["python3", "-c", "while True: pass"], timeout=1)

assert result.termination is sk.Termination.TIMED_OUT
print(result.outcome)  # was ended by its deadline after 1 s
