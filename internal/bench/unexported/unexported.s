// Empty: lets unexported.go declare functions without bodies.
