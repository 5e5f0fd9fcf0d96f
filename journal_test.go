package retry_test

import "errors"

// errStale is how a store refuses a worker whose State is not the last.
var errStale = errors.New("a newer revision is stored")
