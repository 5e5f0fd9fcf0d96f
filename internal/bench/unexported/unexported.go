// Package unexported reaches the Retry-After parsers that two peers do not
// export, so that what is measured is their code and not a copy of it.
package unexported

import (
	"net/http"
	"time"
	_ "unsafe" // for go:linkname

	_ "github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime" // links what AzcoreRetryAfter names
	_ "github.com/hashicorp/go-retryablehttp"                // links what RetryableHTTP names
)

// AzcoreRetryAfter is azcore's: it looks up three fields of the header.
//
//go:linkname AzcoreRetryAfter github.com/Azure/azure-sdk-for-go/sdk/azcore/internal/shared.RetryAfter
func AzcoreRetryAfter(*http.Response) time.Duration

// RetryableHTTP is go-retryablehttp's: it is given the values of the field.
//
//go:linkname RetryableHTTP github.com/hashicorp/go-retryablehttp.parseRetryAfterHeader
func RetryableHTTP([]string) (time.Duration, bool)
